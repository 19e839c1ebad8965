#pragma once

#include "link/link.hpp"
#include "node/node.hpp"
#include "object/context.hpp"
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

/// A posted send request. Behind it in its place of the `send_ring` lies what its opcode needs, and
/// then its scatter list or inline bytes: most requests lie in one or two cache lines.
struct send_request {
  struct remote_memory {
    std::uint64_t address;
    std::uint32_t rkey;
    std::uint64_t operand[2];  ///< atomics alone have them: compare or add, swap
  };
  struct destination {
    union ibv_gid gid;  ///< copied from the AH, which may be destroyed after the post
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
    std::uint32_t region;  ///< its lkey; 0: none
    ibv_mw_type type;
    std::uint64_t address;
    std::uint64_t bytes;
    unsigned access;
  };

  std::uint64_t wr_id = 0;
  std::uint32_t immediate = 0;  ///< as the user gave it, or the rkey to invalidate
  std::uint32_t length = 0;     ///< of the message, all pieces
  std::uint32_t psn = 0;        ///< while it executes: of its first packet
  std::uint32_t offset = 0;     ///< while it executes: bytes sent, or of an answer received
  ibv_wr_opcode opcode : 8 {};
  std::uint8_t flags = 0;      ///< IBV_SEND_*
  std::uint8_t sge_count = 0;  ///< 0 when inline
  std::uint8_t data_at = 0;    ///< bytes from here
  bool inlined = false;
  bool sent = false;  ///< its last frame is on the link: it waits for its answer

  // One of them, and none for a SEND that is no datagram.
  [[nodiscard]] remote_memory& remote() const noexcept { return behind<remote_memory>(); }
  [[nodiscard]] destination& datagram() const noexcept { return behind<destination>(); }
  /// Copied, too: window and region may be destroyed before it executes, and it fails then.
  [[nodiscard]] window& bind() const noexcept { return behind<window>(); }
  /// A request has one or the other.
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

/// The ring of a QP's send requests: their indices, which only grow. posted - released <= capacity,
/// as on hardware: a place is free again when a completion at or after it was polled
/// (qp_slot::released).
struct send_ring {
  // reported <= completed <= next <= posted <= built
  std::uint64_t built = 0;   ///< one past the newest of an open batch, which only its thread sees
  std::uint64_t posted = 0;  ///< one past the newest
  std::uint64_t next = 0;    ///< the first that was not sent entirely, or must be sent again
  std::uint64_t completed = 0;  ///< the first that has not ended
  std::uint64_t reported = 0;   ///< the first whose end is still to be told
  std::uint64_t first = 0;      ///< one that has, or had, the first place
};

/// Its places, which lie in front of the queue pair, the first beside it.
class send_places {
 public:
  explicit send_places(const ibv_qp_cap& capabilities) noexcept;
  static std::size_t bytes_for(const ibv_qp_cap& capabilities) noexcept;

  /// Of the ring that ends there.
  [[nodiscard]] send_request& at(const send_ring& ring, std::uint64_t index,
                                 void* end) const noexcept {
    const std::uint64_t place = (index - ring.first) & mask_;
    return *reinterpret_cast<send_request*>(
        (static_cast<cache_line*>(end) - (place + 1) * place_lines_)->bytes);
  }
  [[nodiscard]] std::uint32_t capacity() const noexcept { return capacity_; }
  [[nodiscard]] std::uint32_t sges_max() const noexcept { return sges_max_; }
  [[nodiscard]] std::uint32_t inline_max() const noexcept { return inline_max_; }

 private:
  struct alignas(64) cache_line {
    std::byte bytes[64];
  };

  std::uint16_t capacity_;
  std::uint16_t mask_;  ///< of capacity_ rounded up to a power of two
  std::uint16_t inline_max_;
  std::uint8_t sges_max_;
  std::uint8_t place_lines_;
};

/// What the requester keeps; under qp_slot::send.
struct requester_state {
  std::uint32_t psn = 0;              ///< of the next message
  std::uint32_t epoch = 0;            ///< no other connection of this process has had it
  std::uint32_t reads_in_flight = 0;  ///< READs and atomics; max_rd_atomic bounds it
  std::uint8_t retries_left = 0;
  std::uint8_t rnr_retries_left = 0;
  bool unanswered = false;  ///< it is silence that is waited out: then one retry is spent
  bool waits = false;       ///< RNR or retry: nothing is sent before …
  clock::time_point wait_until{};
  std::uint64_t begun = 0;  ///< one past the newest that was sent, and goes on or again
  link* route = nullptr;    ///< null for a peer in this process
  std::uint32_t route_generation = 0;
  clock::time_point watch_at{};  ///< when check_route() is due; the clock's zero: never
};

static_assert(sizeof(send_ring) + offsetof(requester_state, wait_until) == 64);

/// Before which a delayed link does not start a request: of that index, in its place.
struct start_delay {
  std::uint64_t index = 0;
  clock::time_point over{};
};

/// A READ or an atomic whose answer another process awaits.
struct pending_answer {
  frame_kind kind;
  std::uint32_t psn;
  std::uint32_t rkey;
  std::uint64_t remote_address;
  std::uint32_t bytes;
  std::uint32_t offset;    ///< bytes already answered
  std::uint64_t previous;  ///< atomics were executed when they came
};

/// What the responder keeps, besides qp_slot::expected; under qp_slot::receive.
struct responder_state {
  std::uint32_t epoch = 0;  ///< RC: of the requests that were taken
  bool has_request = false;
  bool ack_due = false;
  nak_code nak_due = nak_code::none;  ///< sent after the answers and the ack before it
  /// Of the refusal that ended the connection: raised when the NAK is on its way, so that a program
  /// that hangs up by other means because of it does not overtake the answer.
  std::optional<ibv_event_type> event_due{};
  receive_request request{};  ///< of the SEND in progress (its sges are copied to request_sges)
  std::uint32_t ack_psn = 0;
  std::uint32_t nak_psn = 0;
  std::uint64_t answers_head = 0;
  std::uint64_t answers_tail = 0;
  link* route = nullptr;  ///< where the last request came from: answers go there
  std::uint32_t route_generation = 0;
  std::array<ibv_sge, request_sges_max> request_sges{};
  std::array<pending_answer, rd_atomic_max> answers{};  ///< a ring of max_dest_rd_atomic
};

/// What requests ask of what modify_qp set.
struct connection_terms {
  std::uint32_t peer_qpn = 0;
  std::uint8_t mtu_shift = 0;
  std::uint8_t rd_atomic_max = 0;       ///< in flight, from here
  std::uint8_t dest_rd_atomic_max = 0;  ///< and from there
  std::uint8_t retries = 0;
  std::uint8_t rnr_retries = 0;
  std::uint8_t access = 0;  ///< IBV_ACCESS_REMOTE_*
};

/// The program holds `handle`, as ibv_qp or ibv_qp_ex. Each request touches few cache lines,
/// because none of a thousand queue pairs is in a near cache. A sender touches the line of
/// `local_node`, the first of the handle, that of `sends`, and the request. A receiver touches the
/// line of `local_node` and that of qp_slot::receive.
struct alignas(64) queue_pair {
  ibv_qp_ex handle;  // First: pointers to it are cast back.

  alignas(64) node* local_node;
  qp_slot* slot;
  std::atomic<qp_slot*> peer_slot{nullptr};  ///< RC, UC: of a peer in this process
  const ibv_pd* pd;  // As in the handle, which a WRITE or a READ does not look at where it arrives.
  /// Written under both locks of the slot, except: an error found under one lock stores IBV_QPS_ERR
  /// (or SQE under `send`) and kicks; run() then flushes under both.
  std::atomic<ibv_qp_state> state{IBV_QPS_RESET};
  connection_terms terms;
  send_places places;
  std::atomic<bool> flush_due{false};
  std::atomic<bool> disturbed{false};  ///< look at the faults
  bool in_batch = false;               ///< changes under `batch` and slot->send
  bool is_peer_local = false;          ///< RC, UC: in this process
  bool signals_all = false;            ///< each request has a completion entry
  bool is_draining = false;            ///< under slot->send
  ibv_qp_type kind : 8;

  alignas(64) send_ring sends;
  requester_state requester;
  std::unique_ptr<start_delay[]> delays;  ///< null: the link never was delayed

  alignas(64) responder_state responder;
  receive_ring receives;

  node_address peer;      ///< RC, UC: from RTR on
  ibv_qp_init_attr init;  ///< capabilities as granted
  ibv_qp_attr attr{};     ///< what modify_qp set; the state in it is `state`

  // Faults (softverbs.h), looked at behind `disturbed`.
  std::atomic<bool> cut{false};
  std::atomic<std::uint64_t> delay_ns{0};
  std::atomic<int> next_status{-1};  ///< ibv_wc_status, or -1

  // ibv_wr_*
  std::uint64_t send_ops = 0;  ///< IBV_QP_EX_WITH_*; 0: not made for ibv_wr_*
  std::mutex batch{};          ///< held from wr_start to wr_complete
  int batch_error = 0;         ///< under `batch`

  [[nodiscard]] ibv_qp_type type() const noexcept { return kind; }
  [[nodiscard]] std::uint32_t number() const noexcept { return handle.qp_base.qp_num; }
  [[nodiscard]] send_request& request(std::uint64_t index) noexcept {
    return places.at(sends, index, this);
  }
  /// One past the newest request that ever was sent, if only in part.
  [[nodiscard]] std::uint64_t begun() const noexcept {
    return std::max(requester.begun, sends.next);
  }
  [[nodiscard]] completion_queue& send_cq() const noexcept {
    return *reinterpret_cast<completion_queue*>(handle.qp_base.send_cq);
  }
  [[nodiscard]] completion_queue& receive_cq() const noexcept {
    return *reinterpret_cast<completion_queue*>(handle.qp_base.recv_cq);
  }
  /// Null: `receives` is its own.
  [[nodiscard]] shared_receive_queue* srq() const noexcept {
    return reinterpret_cast<shared_receive_queue*>(handle.qp_base.srq);
  }
};

/// A queue pair lies in one block (queue_memory.hpp), behind its send ring.
struct queue_pair_deleter {
  void operator()(queue_pair* qp) const noexcept;
};
using owned_queue_pair = std::unique_ptr<queue_pair, queue_pair_deleter>;

/// Holds qp_slot::send for a change of the QP. The mutex is not fair: a queue that is never empty
/// would take it again and again. So run() yields to a change, which kicks the QP at its end.
class change_lock {
 public:
  explicit change_lock(const queue_pair& qp) noexcept
      : local_node_{*qp.local_node}, slot_{*qp.slot}, qpn_{qp.number()} {
    slot_.changes.fetch_add(1);
    slot_.send.lock();
  }
  ~change_lock() {
    slot_.send.unlock();
    slot_.changes.fetch_sub(1);
    local_node_.kick(qpn_);
  }
  change_lock(const change_lock&) = delete;
  change_lock& operator=(const change_lock&) = delete;

 private:
  node& local_node_;
  qp_slot& slot_;
  std::uint32_t qpn_;
};

// ---- pieces of qp/, by file

/// send_queue.cpp: turns requests into ring entries. EINVAL, ENOMEM as ibv_post_send(3).
int enqueue(queue_pair& qp, const ibv_send_wr& wr) noexcept;

/// queue_pair.cpp, under both locks: the send queue is empty and all its places are free, whichever
/// of its completions are still to be polled.
void release_all(queue_pair& qp) noexcept;

/// requester.cpp. Executes what can be executed, flushes in ERR and SQE; under slot->send.
/// `posts` requests were just posted; each adds bytes to the quantum.
void execute(queue_pair& qp, std::uint64_t posts = 1) noexcept;
/// The oldest request that is still open has ended. The entry of a success is pushed with those of
/// the next ones, at the end of `execute` if not before.
void complete_oldest(queue_pair& qp, ibv_wc_status status) noexcept;

/// answers.cpp: before this QP is reset or destroyed, under both locks: what it owes to a requester
/// elsewhere becomes the slot's to send, so that nobody waits for ever.
void leave_answers(queue_pair& qp) noexcept;

/// flush.cpp: to ERR from either side. Callable under `send` or `receive`, or both.
void enter_error(queue_pair& qp) noexcept;
/// Under both locks: completes everything left with WR_FLUSH_ERR.
void flush(queue_pair& qp) noexcept;

/// transitions.cpp: a pure table. 0, or EINVAL when `mask` lacks a required attribute or has a
/// forbidden one.
int check_transition(ibv_qp_type type, ibv_qp_state from, ibv_qp_state to, int mask) noexcept;

}  // namespace softverbs
