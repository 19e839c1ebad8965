#pragma once

#include "memory/guarded_copy.hpp"
#include "object/context.hpp"
#include "qp/queue_pair.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

// Private to the files of the data path in qp/.

namespace softverbs {

/// The largest piece of a message to a peer in this process. Memory is pinned for one piece; the
/// lock of the peer is held for one piece, or for several short ones.
inline constexpr std::uint32_t piece_bytes_max = 256 * 1024;

/// The quantum of a QP: the most that it executes before other QPs are served. Both bounds take
/// some 100 us. Requests that are posted together have a quantum of bytes each.
inline constexpr std::uint32_t requests_per_quantum = 256;
inline constexpr std::uint32_t bytes_per_quantum = 1024 * 1024;

/// The lock of the responder of a peer in this process. The lock is held across short requests that
/// were posted together, because locking takes longer than such a request.
class responder_lock {
 public:
  responder_lock() noexcept = default;
  responder_lock(const responder_lock&) = delete;
  responder_lock& operator=(const responder_lock&) = delete;
  ~responder_lock() { release(); }

  void take(adaptive_mutex& mutex) noexcept {
    if (held_ == &mutex) return;
    release();
    mutex.lock();
    held_ = &mutex;
    left_ = pieces_max;
  }
  /// Call after a piece of that many bytes; `follows`: another request comes next.
  void taken(std::uint32_t bytes, bool follows) noexcept {
    if (!follows || bytes > brief_bytes_max || --left_ == 0) release();
  }
  void release() noexcept {
    if (held_ != nullptr) std::exchange(held_, nullptr)->unlock();
  }

 private:
  // Together, the bounds limit the hold to some 2 us.
  static constexpr std::uint32_t pieces_max = 16;
  static constexpr std::uint32_t brief_bytes_max = 1024;

  adaptive_mutex* held_ = nullptr;
  std::uint32_t left_ = 0;
};

/// The rest of a quantum, and the lock that the QP keeps during it.
class quantum {
 public:
  static constexpr std::uint64_t unlimited = ~std::uint64_t{0};
  /// `may_send`: what the rate limit of the QP leaves.
  quantum(std::uint64_t posts, std::uint64_t may_send) noexcept
      : bytes_left_{static_cast<std::int64_t>(std::min(posts * bytes_per_quantum, may_send))},
        bytes_max_{bytes_left_} {}
  [[nodiscard]] bool over() const noexcept { return requests_left_ == 0 || bytes_left_ <= 0; }
  void spend_request() noexcept { --requests_left_; }
  void spend_bytes(std::uint32_t bytes) noexcept { bytes_left_ -= bytes; }
  /// Notes that bytes which were spent were a READ's: the responder sends those.
  void note_read(std::uint32_t bytes) noexcept { read_ += bytes; }
  /// Returns the bytes that count towards the rate limit.
  [[nodiscard]] std::uint64_t sent() const noexcept {
    return static_cast<std::uint64_t>(bytes_max_ - bytes_left_) - read_;
  }
  [[nodiscard]] responder_lock& responder() noexcept { return responder_; }

 private:
  std::uint32_t requests_left_ = requests_per_quantum;
  std::int64_t bytes_left_;
  std::int64_t bytes_max_;
  std::uint64_t read_ = 0;
  responder_lock responder_;
};

/// The service of the requests that the QP sends, or takes as a target of XRC.
[[nodiscard]] inline service service_of(const queue_pair& qp) noexcept {
  return static_cast<service>(static_cast<std::uint8_t>(qp.transport) & service_bits);
}

/// The number of PSNs of a message: one for each packet of the path MTU, at least one.
[[nodiscard]] inline std::uint32_t packets_of(const queue_pair& qp, std::uint32_t bytes) noexcept {
  const std::uint64_t mtu = std::uint64_t{1} << qp.terms.mtu_shift;
  return std::max(1u, static_cast<std::uint32_t>((bytes + mtu - 1) >> qp.terms.mtu_shift));
}

/// The signed distance from `reference` to `psn`, in 24 bits; negative if `psn` is earlier.
[[nodiscard]] inline std::int32_t psn_distance(std::uint32_t reference,
                                               std::uint32_t psn) noexcept {
  return static_cast<std::int32_t>((psn - reference) << 8) >> 8;
}

/// A range of bytes under one key.
struct local_part {
  std::uint64_t address = 0;
  std::uint32_t lkey = 0;
  std::uint32_t bytes = 0;
};

/// Iterates over a scatter list, from any byte on.
class sge_cursor {
 public:
  sge_cursor(const ibv_sge* sges, std::uint32_t count, std::uint32_t skip) noexcept
      : at_{sges}, end_{sges + count}, within_{skip} {
    settle();
  }
  /// The next bytes of one entry, at most `bytes_max`; no bytes at the end of the list.
  local_part next(std::uint32_t bytes_max) noexcept {
    if (at_ == end_) return {};
    const local_part part{at_->addr + within_, at_->lkey,
                          std::min(bytes_max, at_->length - within_)};
    within_ += part.bytes;
    settle();
    return part;
  }

 private:
  void settle() noexcept {
    while (at_ != end_ && within_ >= at_->length) within_ -= (at_++)->length;
  }
  const ibv_sge* at_;
  const ibv_sge* end_;
  std::uint32_t within_;
};

/// Queues an affiliated asynchronous event of this QP.
void raise(queue_pair& qp, ibv_event_type type) noexcept;
void raise_due(queue_pair& qp) noexcept;
void raise_limit(shared_receive_queue& srq) noexcept;

// ---- local_memory.cpp

/// Pins local memory for one copy. The key of a window fails, because `access` has no remote right.
[[nodiscard]] bool pin_local(node& local_node, const ibv_pd* pd, const local_part& part,
                             unsigned access, pinned& result) noexcept;
/// True if the whole scatter list of the request may be used now.
[[nodiscard]] bool local_memory_good(queue_pair& qp, std::uint64_t index) noexcept;
/// Copies the request's bytes, from `offset` on. False: a bad key, or unmapped memory.
[[nodiscard]] bool gather(queue_pair& qp, std::uint64_t index, std::uint32_t offset, std::byte* to,
                          std::uint32_t bytes) noexcept;
/// Reads the word of an ATOMIC WRITE that names it by a list. False: as for gather().
[[nodiscard]] bool gather_operand(queue_pair& qp, send_request& request) noexcept;
enum class scattered : std::uint8_t { all, bad_sink, bad_source };
[[nodiscard]] scattered scatter(node& local_node, const ibv_pd* pd, sge_cursor& cursor,
                                const std::byte* from, std::uint32_t bytes) noexcept;
/// Copies the bytes of an answer to the request's list, from `offset` on.
[[nodiscard]] bool scatter_answer(queue_pair& qp, std::uint64_t index, std::uint32_t offset,
                                  const std::byte* from, std::uint32_t bytes) noexcept;
/// Call after a failed copy: true if the source is readable, so that the sink was at fault.
[[nodiscard]] bool readable(const std::byte* from, std::size_t bytes) noexcept;

// ---- requester; all under slot->send. The result of a step says what execute() does next. It
// waits for an event, goes on with the queue, or goes on in the next quantum.

enum class next_step : std::uint8_t { wait, go_on, next_quantum };

/// Ends the request at the head with an error; the QP goes to ERR, or to SQE on UC and UD. The
/// error waits until all earlier requests are answered.
next_step fail(queue_pair& qp, ibv_wc_status status) noexcept;
/// Ends the request at the head with success.
next_step succeed(queue_pair& qp) noexcept;
/// Handles a NAK for the request at the head.
next_step refused(queue_pair& qp, nak_code why, std::uint32_t rnr_timer) noexcept;
/// Starts the timer of check_route() if `route`, which leads to another host, may fall silent.
void watch_route(queue_pair& qp, const link& route) noexcept;
void note_sent(queue_pair& qp) noexcept;  ///< a simulation: a piece of the head was sent
/// Ends the oldest request with RETRY_EXC if the route was silent for as long as all tries take.
/// Called when the timer of watch_route() expires, under slot->send.
void check_route(queue_pair& qp) noexcept;
/// Makes the requester send all unanswered requests again.
void rewind(queue_pair& qp) noexcept;
/// The header of a frame for this request, without the position in the message.
[[nodiscard]] frame_header header_for(const queue_pair& qp, const send_request& request) noexcept;
/// True if the request has one of these opcodes, of which none exceeds 31.
[[nodiscard]] inline bool is_any_of(ibv_wr_opcode opcode, std::uint32_t opcodes) noexcept {
  return (opcodes >> static_cast<unsigned>(opcode) & 1u) != 0;
}
/// The atomics that give the value before.
inline constexpr std::uint32_t fetching_opcodes =
    1u << IBV_WR_ATOMIC_CMP_AND_SWP | 1u << IBV_WR_ATOMIC_FETCH_AND_ADD;
inline constexpr std::uint32_t atomic_opcodes = fetching_opcodes | 1u << IBV_WR_ATOMIC_WRITE;
[[nodiscard]] inline bool is_fetching(ibv_wr_opcode opcode) noexcept {
  return is_any_of(opcode, fetching_opcodes);
}
[[nodiscard]] inline bool is_atomic(ibv_wr_opcode opcode) noexcept {
  return is_any_of(opcode, atomic_opcodes);
}
/// An ATOMIC WRITE counts, because its answer, though it is empty, takes a place of the responder
/// as a READ's does (IBTA vol. 1, annex A19).
[[nodiscard]] inline bool is_answered_with_data(ibv_wr_opcode opcode) noexcept {
  return is_any_of(opcode, atomic_opcodes | 1u << IBV_WR_RDMA_READ);
}

/// Call when the whole request at the head was sent: it waits for its answer, if there is one.
next_step now_in_flight(queue_pair& qp, send_request& request) noexcept;  // remote_peer.cpp

// If the quantum ends within a message, the next quantum goes on at `request.offset`.
next_step execute_local(queue_pair& qp, send_request& request,
                        quantum& now) noexcept;  // local_peer.cpp
next_step execute_remote(queue_pair& qp, send_request& request,
                         quantum& now) noexcept;                        // remote_peer.cpp
next_step bind_window(queue_pair& qp, send_request& request) noexcept;  // local_work.cpp
next_step invalidate(queue_pair& qp, send_request& request) noexcept;   // local_work.cpp

/// Invalidates a type 2 window that this QP may use. False: there is none with this rkey.
bool invalidate_key(queue_pair& qp, std::uint32_t rkey) noexcept;  // local_work.cpp

// ---- responder.cpp, for a peer in this process

/// The answer of a responder to a piece of a request.
struct reply {
  nak_code nak = nak_code::none;
  std::uint8_t rnr_timer = 0;
  std::uint64_t previous = 0;  ///< atomics
  bool source_fault = false;   ///< the requester's memory is unmapped: LOC_PROT_ERR there
  bool is_acknowledged = false;
  bool is_passed_on = false;  ///< XRC: another process answers
  bool is_held = false;       ///< XRC: there is no room yet to pass the piece on
};

/// One piece of a request to a peer in this process. A READ copies to `read_into`, which is checked
/// already; a WRITE or a SEND brings `bytes`.
struct local_piece {
  const frame_header&
      header;  ///< first/last/offset/length as in a frame; payload_bytes may exceed a segment
  std::span<const std::byte> bytes;
  std::byte* read_into = nullptr;
};
/// Executes a piece at the local peer, whose lock `lock` acquires.
reply respond(node& local_node, const local_piece& piece, responder_lock& lock) noexcept;

// ---- responder; all under slot->receive

/// A piece of a request from a local or remote peer.
struct incoming {
  const frame_header& header;
  const std::byte* bytes = nullptr;      ///< bytes of a SEND or WRITE
  std::byte* read_into = nullptr;        ///< target of a READ, when the peer is in this process
  link* from = nullptr;                  ///< null: the peer is in this process
  const union ibv_gid* group = nullptr;  ///< group of a multicast datagram
};

/// True if the state of this QP allows requests.
[[nodiscard]] inline bool is_receiving(const queue_pair& qp) noexcept {
  switch (qp.state.load(std::memory_order_acquire)) {
    case IBV_QPS_RTR:
    case IBV_QPS_RTS:
    case IBV_QPS_SQD:
    case IBV_QPS_SQE: return true;
    default: return false;
  }
}
/// True if the state and the transport of this QP allow the request. The sender is not checked. XRC
/// never does: see take_for_queue().
[[nodiscard]] bool listens_to(const queue_pair& qp, const frame_header& header) noexcept;
/// Moves a reliable queue pair to ERR after a refused request. An event reports the error, since no
/// completion does.
void end_connection(queue_pair& qp, nak_code why) noexcept;
/// Executes a piece for a QP that listens. `nak_code::dropped`: the piece was not taken.
reply take(queue_pair& qp, const incoming& piece) noexcept;

// xrc.cpp
/// Executes a piece for a target of XRC, if this QP is one.
reply take_for_queue(queue_pair& qp, const incoming& piece) noexcept;
/// Completes the receive request that a message has taken with WR_FLUSH_ERR.
void flush_request(queue_pair& qp) noexcept;

// queue_pair.cpp
/// Makes a queue pair without a number that no program sees: a proxy of XRC. It has no context.
/// \errors std::bad_alloc
owned_queue_pair make_hidden(node& local_node);

// one_sided.cpp
reply take_write(queue_pair& qp, const incoming& piece) noexcept;
reply take_read(queue_pair& qp, const incoming& piece) noexcept;
reply take_atomic(queue_pair& qp, const incoming& piece) noexcept;

// two_sided.cpp
reply take_send(queue_pair& qp, const incoming& piece) noexcept;
reply take_datagram(queue_pair& qp, const incoming& piece) noexcept;
/// Takes a receive request for a new message. False: none is posted.
bool fetch_receive(queue_pair& qp) noexcept;
/// Acknowledges the message that `piece` ends, then completes its receive request.
reply end_message(queue_pair& qp, const incoming& piece) noexcept;
/// `slid`: of a datagram's sender, on an InfiniBand port.
void complete_receive(queue_pair& qp, const frame_header& header, ibv_wc_status status,
                      std::uint16_t slid = 0) noexcept;

// grh.cpp
inline constexpr std::uint32_t grh_bytes = 40;
/// False on an InfiniBand port if the datagram was addressed by LID alone.
[[nodiscard]] bool has_grh(const frame_header& header) noexcept;
/// `ibv_wc::sl` of a datagram: its service level on an InfiniBand port. On Ethernet it is the RoCE
/// packet type, as on mlx5, because a GRH does not tell where its IP header starts.
[[nodiscard]] std::uint8_t service_level(const frame_header& header) noexcept;
/// Writes the bytes that a device puts before the payload of a datagram: a RoCEv2 device its IP
/// header, an InfiniBand device a GRH. `group`: the destination of a multicast datagram.
void write_grh(const frame_header& header, std::byte (&grh)[grh_bytes],
               const union ibv_gid* group = nullptr) noexcept;

// multicast.cpp
/// Sends a datagram to all members of its group.
next_step execute_multicast(queue_pair& qp, send_request& request, quantum& now) noexcept;
/// Gives a datagram of another process to the members in this one. \thread see on_request().
void on_multicast(node& local_node, link& from, const frame_header& header,
                  const std::byte* payload) noexcept;

// answers.cpp
/// Sends the acknowledgement of a message. Call before the receiver can see the message: a process
/// that ends at the sight of its last message sends nothing more. False: there is no room, or the
/// answers of READs and atomics go first.
[[nodiscard]] bool acknowledge(queue_pair& qp, const incoming& piece) noexcept;
/// Stores the answer to this request, and makes the link call send_answers().
void schedule_answer(queue_pair& qp, const incoming& piece, const reply& answer) noexcept;
/// Sends the answers that are due before a request of this QP: on a wire, an answer is never
/// overtaken by a later request. If there is no room for the answers, the request goes first. Under
/// slot->send.
void answer_before_request(queue_pair& qp) noexcept;
/// Sends all answers that are due, and raises the event behind them. False: some are left. Under
/// slot->receive.
bool send_due(queue_pair& qp, link& to) noexcept;
/// Sends the NAK that is due to that link, if any, because the next request may need another NAK.
/// False: no room. Under slot->receive.
[[nodiscard]] bool send_due_nak(queue_pair& qp, link& to) noexcept;
/// Sends a `dropped` NAK for a request that no QP takes. False: no room.
[[nodiscard]] bool reject(link& from, const frame_header& header) noexcept;
/// Sends the answers that destroyed or reset QPs of this number still owe to that link. False: no
/// room for all. Under `receive`.
[[nodiscard]] bool send_orphans(qp_slot& slot, link& to, std::uint32_t local_qpn) noexcept;

/// Sends all answers of destroyed or reset QPs, and tries again soon if there is no room. Under
/// `receive`.
void send_orphans(node& local_node, qp_slot& slot, std::uint32_t local_qpn) noexcept;

// flush.cpp
void raise_queue_error(queue_pair& qp) noexcept;  ///< call when a CQE was lost: the QP goes to ERR
void flush_sends(queue_pair& qp) noexcept;        ///< under slot->send
void flush_receives(queue_pair& qp) noexcept;     ///< under slot->receive

}  // namespace softverbs
