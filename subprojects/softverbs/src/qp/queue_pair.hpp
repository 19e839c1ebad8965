#pragma once

#include "link/link.hpp"
#include "node/node.hpp"
#include "object/context.hpp"
#include "object/xrc_domain.hpp"
#include "qp/pacer.hpp"
#include "queue/completion_queue.hpp"
#include "queue/receive_queue.hpp"

#include <infiniband/verbs.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <new>
#include <optional>

namespace softverbs {

class relay;

/// The head of a send WQE (work queue element). The fields of its opcode follow, and then the
/// scatter list or the inline bytes: most WQEs take one or two cache lines.
struct send_request {
  struct remote_memory {
    std::uint64_t address;
    std::uint32_t rkey;
    std::uint64_t operand[2];  ///< operands of an atomic: compare or add, swap
  };
  struct destination {
    union ibv_gid gid;  ///< copied from the AH: the program may destroy it after the post
    union ibv_gid source_gid;
    in6_addr host;
    std::uint32_t qpn;
    std::uint32_t qkey;
    std::uint32_t class_and_flow;
    std::uint8_t hop_limit;
    [[nodiscard]] node_address to() const noexcept { return {host, slot_of(qpn)}; }
  };
  struct window {
    const ibv_pd* pd;
    std::uint32_t old_rkey;
    std::uint32_t new_rkey;
    std::uint32_t region;  ///< the lkey of the region; 0: none
    ibv_mw_type type;
    std::uint64_t address;
    std::uint64_t bytes;
    unsigned access;
  };

  std::uint64_t wr_id = 0;
  std::uint32_t immediate = 0;  ///< the user's immediate data, or the rkey to invalidate
  std::uint32_t length = 0;     ///< length of the whole message
  std::uint32_t psn = 0;        ///< PSN of the first packet; set when the request starts
  std::uint32_t offset = 0;     ///< the bytes sent, or received of an answer
  ibv_wr_opcode opcode : 8 {};
  std::uint8_t flags = 0;      ///< IBV_SEND_*
  std::uint8_t sge_count = 0;  ///< 0 when inline
  std::uint8_t data_at = 0;    ///< the offset of data() in the WQE
  bool inlined = false;
  bool sent = false;  ///< the last frame is on the link: the request waits for its answer

  // A WQE has one of these parts; a SEND other than a datagram has none.
  [[nodiscard]] remote_memory& remote() const noexcept { return behind<remote_memory>(); }
  [[nodiscard]] destination& datagram() const noexcept { return behind<destination>(); }
  /// A copy: a bind fails if window or region are destroyed before it executes.
  [[nodiscard]] window& bind() const noexcept { return behind<window>(); }
  /// A WQE has a scatter list or inline data.
  [[nodiscard]] ibv_sge* sges() const noexcept { return reinterpret_cast<ibv_sge*>(data()); }
  [[nodiscard]] std::byte* data() const noexcept {
    return const_cast<std::byte*>(reinterpret_cast<const std::byte*>(this)) + data_at;
  }

 private:
  template <class T>
  [[nodiscard]] T& behind() const noexcept {
    return *reinterpret_cast<T*>(const_cast<send_request*>(this + 1));
  }
};
static_assert(sizeof(send_request) == 32);

/// The indices of a QP's send WQEs, which only grow. posted - released <= capacity, as on hardware:
/// a WQE is free again after a poll of its CQE or a later one (qp_slot::released).
struct send_ring {
  // reported <= completed <= next <= posted <= built
  std::uint64_t built = 0;      ///< end of the requests of an open batch; private to its thread
  std::uint64_t posted = 0;     ///< end of the posted requests
  std::uint64_t next = 0;       ///< the first that was not sent completely, or must be sent again
  std::uint64_t completed = 0;  ///< the first that has not ended
  std::uint64_t reported = 0;   ///< the first without a CQE for its end
  std::uint64_t first = 0;      ///< the index of a WQE at the start of the memory, now or before
};

/// The memory of the send WQEs, which lies in front of the queue pair and grows downwards from it.
class send_wqes {
 public:
  explicit send_wqes(const ibv_qp_cap& capabilities) noexcept;
  static std::size_t bytes_for(const ibv_qp_cap& capabilities) noexcept;

  /// The WQE `index` of the ring whose memory ends at `end`.
  [[nodiscard]] send_request& at(const send_ring& ring, std::uint64_t index,
                                 void* end) const noexcept {
    const std::uint64_t wqe = (index - ring.first) & mask_;
    return *reinterpret_cast<send_request*>(
        (static_cast<cache_line*>(end) - (wqe + 1) * wqe_lines_)->bytes);
  }
  [[nodiscard]] std::uint32_t capacity() const noexcept { return capacity_; }
  [[nodiscard]] std::uint32_t sges_max() const noexcept { return sges_max_; }
  [[nodiscard]] std::uint32_t inline_max() const noexcept { return inline_max_; }

 private:
  struct alignas(64) cache_line {
    std::byte bytes[64];
  };

  std::uint16_t capacity_;
  std::uint16_t mask_;  ///< capacity_ rounded up to a power of two, less one
  std::uint16_t inline_max_;
  std::uint8_t sges_max_;
  std::uint8_t wqe_lines_;
};

/// The state of the requester; under qp_slot::send. `waits` and `unanswered` are a state machine:
///
/// | state    | waits | unanswered | left by                                                   |
/// | -------- | ----- | ---------- | --------------------------------------------------------- |
/// | sending  | no    | no         | refused(): an RNR NAK, or no answer                       |
/// | RNR wait | yes   | no         | waits_for_timer(), at `wait_until`                        |
/// | timeout  | yes   | yes        | waits_for_timer(), at `wait_until`: one retry is spent    |
/// |          |       |            | execute_posted(): the post tries early                    |
/// | early    | no    | yes        | refused(): no answer, back to the timeout, which runs on; |
/// |          |       |            | an RNR NAK; complete_oldest(), to sending                 |
struct requester_state {
  std::uint32_t psn = 0;              ///< PSN of the next message
  std::uint32_t epoch = 0;            ///< unique among the connections of this process
  std::uint32_t reads_in_flight = 0;  ///< READs and atomics, bounded by max_rd_atomic
  std::uint8_t retries_left = 0;
  std::uint8_t rnr_retries_left = 0;
  bool unanswered = false;  ///< the responder did not answer: the wait spends a retry
  bool waits = false;       ///< RNR or retry: nothing is sent before `wait_until`
  clock::time_point wait_until{};
  std::uint64_t begun = 0;  ///< end of the requests that were sent, at least in part
  link* route = nullptr;    ///< null: the peer is in this process
  std::uint32_t route_generation = 0;
  clock::time_point watch_at{};  ///< when check_route() is due; the clock's zero: never
  clock::time_point asked_at{};  ///< a simulation: when a piece of the oldest request was sent
};

static_assert(sizeof(send_ring) + offsetof(requester_state, wait_until) == 64);

/// The earliest start of the request `index` on a delayed link.
struct start_delay {
  std::uint64_t index = 0;
  clock::time_point over{};
};

/// A READ or an atomic of another process that is not answered completely.
struct pending_answer {
  frame_kind kind;
  std::uint32_t psn;
  std::uint32_t rkey;
  std::uint64_t remote_address;
  std::uint32_t bytes;
  std::uint32_t offset;  ///< bytes already answered
  std::uint64_t
      previous;  ///< the result of an atomic, which executes on arrival; XRC: a READ's queue
};

/// The state of the responder beyond qp_slot::expected; under qp_slot::receive.
struct responder_state {
  std::uint32_t epoch = 0;  ///< RC: of the last request that was taken
  bool has_request = false;
  bool ack_due = false;
  nak_code nak_due = nak_code::none;  ///< sent after all earlier answers
  /// The event of the NAK that ended the connection. The NAK is sent first: a program that closes
  /// the connection on the event must not overtake it.
  std::optional<ibv_event_type> event_due{};
  receive_request request{};  ///< request of the SEND in progress; its sges point to request_sges
  std::uint32_t ack_psn = 0;
  std::uint32_t nak_psn = 0;
  std::uint64_t answers_head = 0;
  std::uint64_t answers_tail = 0;
  link* route = nullptr;  ///< the link of the last request; answers go there
  std::uint32_t route_generation = 0;
  std::uint32_t queue = 0;  ///< targets of XRC: the queue that the last message named
  std::array<ibv_sge, request_sges_max> request_sges{};
  std::array<pending_answer, rd_atomic_max> answers{};  ///< a ring of max_dest_rd_atomic
};

/// The attributes from modify_qp that requests read.
struct connection_terms {
  std::uint32_t peer_qpn = 0;
  std::uint8_t mtu_shift = 0;
  std::uint8_t rd_atomic_max = 0;       ///< in flight, as requester
  std::uint8_t dest_rd_atomic_max = 0;  ///< in flight, as responder
  std::uint8_t retries = 0;
  std::uint8_t rnr_retries = 0;
  std::uint8_t access = 0;  ///< IBV_ACCESS_REMOTE_*
};

/// The transport of a queue pair. The lower bits are its service.
enum class pattern : std::uint8_t { rc, uc, ud, xrc = 4 };
inline constexpr std::uint8_t service_bits = 3;

/// The program holds `handle`, as ibv_qp or ibv_qp_ex. Each request touches few cache lines,
/// because none of a thousand queue pairs is in a near cache. A sender touches the line of
/// `local_node`, the first of the handle, that of `sends`, and the request. A receiver touches the
/// line of `local_node` and that of qp_slot::receive.
struct alignas(64) queue_pair {
  ibv_qp_ex handle;  // First: pointers to it are cast back.

  alignas(64) node* local_node;
  qp_slot* slot;
  std::atomic<qp_slot*> peer_slot{nullptr};  ///< RC, UC: of a peer in this process
  /// A copy: the responder of a WRITE or a READ does not touch the handle. Of a target of XRC: that
  /// of the queue which the request names, while it executes, or null.
  const ibv_pd* pd;
  /// The states are those of ibv_qp_state. modify_qp moves them under both locks of the slot. An
  /// error found under one lock stores IBV_QPS_ERR (or SQE under `send`) and kicks; run() then
  /// flushes under both.
  std::atomic<ibv_qp_state> state{IBV_QPS_RESET};
  connection_terms terms;
  send_wqes wqes;
  std::atomic<bool> flush_due{false};
  std::atomic<bool> disturbed{false};  ///< some fault is on
  bool in_batch = false;               ///< changes under `batch` and slot->send
  bool is_peer_local = false;          ///< RC, UC: in this process
  bool signals_all = false;            ///< each request has a completion entry
  bool is_draining : 1 = false;        ///< under slot->send
  bool has_rate_limit : 1 = false;     ///< under slot->send; `rate` is set
  std::uint8_t kind = 0;  ///< ibv_qp_type; read without a lock, so no neighbour of those bits
  pattern transport;

  alignas(64) send_ring sends;
  requester_state requester;
  std::unique_ptr<start_delay[]> delays;  ///< null: the link was never delayed
  /// Initiators of XRC: the receive queue of each request.
  std::unique_ptr<std::uint32_t[]> queues;
  std::unique_ptr<pacer> rate;

  alignas(64) responder_state responder;
  std::uint32_t shown_number = 0;  ///< in completions of receives
  receive_ring receives;

  node_address peer;                   ///< RC, UC: from RTR on
  ibv_qp_init_attr init;               ///< capabilities as granted
  ibv_qp_attr attr{};                  ///< attributes that modify_qp has set, except for the state
  ibv_xrcd* domain = nullptr;          ///< targets of XRC
  xrc_domain_id domain_id{};           ///< targets and proxies of XRC
  std::unique_ptr<relay> passed_on{};  ///< targets of XRC
  const domain_memory* memory = nullptr;  ///< memory of this block; null: queue_memory.hpp

  // Faults (softverbs.h), valid while `disturbed` is true.
  std::atomic<bool> cut{false};
  std::atomic<std::uint64_t> delay_ns{0};
  std::atomic<int> next_status{-1};  ///< ibv_wc_status, or -1

  // ibv_wr_*
  std::uint64_t send_ops = 0;  ///< IBV_QP_EX_WITH_*; 0: not made for ibv_wr_*
  std::mutex batch{};          ///< held from wr_start to wr_complete
  int batch_error = 0;         ///< under `batch`

  [[nodiscard]] ibv_qp_type type() const noexcept { return ibv_qp_type(kind); }
  [[nodiscard]] bool is_reliable() const noexcept {
    return (static_cast<std::uint8_t>(transport) & service_bits) == 0;
  }
  /// Initiators of XRC: the receive queue of a request.
  [[nodiscard]] std::uint32_t& queue_of(std::uint64_t index) noexcept {
    return queues[index % wqes.capacity()];
  }
  [[nodiscard]] std::uint32_t number() const noexcept { return handle.qp_base.qp_num; }
  [[nodiscard]] send_request& request(std::uint64_t index) noexcept {
    return wqes.at(sends, index, this);
  }
  /// Returns the end of the requests that were ever sent, at least in part.
  [[nodiscard]] std::uint64_t begun() const noexcept {
    return std::max(requester.begun, sends.next);
  }
  [[nodiscard]] completion_queue& send_cq() const noexcept {
    return *reinterpret_cast<completion_queue*>(handle.qp_base.send_cq);
  }
  [[nodiscard]] completion_queue& receive_cq() const noexcept {
    return *reinterpret_cast<completion_queue*>(handle.qp_base.recv_cq);
  }
  /// The SRQ; null: the QP receives into `receives`.
  [[nodiscard]] shared_receive_queue* srq() const noexcept {
    return reinterpret_cast<shared_receive_queue*>(handle.qp_base.srq);
  }
};

/// Frees the block (queue_memory.hpp) that holds the send WQEs and, behind them, the queue pair.
struct queue_pair_deleter {
  void operator()(queue_pair* qp) const noexcept;
};
using owned_queue_pair = std::unique_ptr<queue_pair, queue_pair_deleter>;

// ---- pieces of qp/, by file

/// send_queue.cpp: writes the WQE of a work request. EINVAL, ENOMEM as ibv_post_send(3).
int enqueue(queue_pair& qp, const ibv_send_wr& wr) noexcept;

/// queue_pair.cpp, under both locks: empties the send queue and frees all WQEs, even if CQEs are
/// still to be polled.
void release_all(queue_pair& qp) noexcept;

/// requester.cpp, under slot->send: executes requests for one quantum; flushes in ERR and SQE.
/// `posts` requests were just posted; each adds bytes to the quantum.
void execute(queue_pair& qp, std::uint64_t posts = 1) noexcept;
/// Executes `posts` requests that the program just posted, under slot->send. A post may end a
/// timeout early: "Reliability" in docs/design.md.
void execute_posted(queue_pair& qp, std::uint64_t posts) noexcept;
/// Ends the oldest open request. The CQE of a success is pushed together with later ones, at the
/// latest at the end of execute().
void complete_oldest(queue_pair& qp, ibv_wc_status status) noexcept;

/// answers.cpp, under both locks: call before this QP is reset or destroyed. Moves the answers that
/// are due to a remote requester to the slot, so that the requester does not wait for ever.
void orphan_answers(queue_pair& qp) noexcept;

/// flush.cpp: moves the QP to ERR. Callable under `send` or `receive`, or both.
void enter_error(queue_pair& qp) noexcept;
/// Completes all open requests with WR_FLUSH_ERR. Under both locks.
void flush(queue_pair& qp) noexcept;

/// transitions.cpp: checks a move against a table. EINVAL if `mask` lacks a required attribute or
/// has a forbidden one.
int check_transition(ibv_qp_type type, ibv_qp_state from, ibv_qp_state to, int mask) noexcept;

}  // namespace softverbs
