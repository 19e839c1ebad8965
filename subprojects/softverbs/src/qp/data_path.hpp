#pragma once

#include "memory/guarded_copy.hpp"
#include "object/context.hpp"
#include "qp/queue_pair.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

// What the files of the data path share with each other, and with nobody else.

namespace softverbs {

/// A peer in this process gets a message in pieces of this size; pins last one piece, and its lock
/// one, or some brief ones.
inline constexpr std::uint32_t piece_bytes_max = 256 * 1024;

/// The quantum of a QP: the most that it executes before other QPs are served. Both bounds take
/// some 100 us. Requests that are posted together have a quantum of bytes each.
inline constexpr std::uint32_t requests_per_quantum = 256;
inline constexpr std::uint32_t bytes_per_quantum = 1024 * 1024;

/// The lock of the responder of a peer in this process. It is kept from one brief request to the
/// next that was posted with it: locking takes longer than such a request.
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
  /// A piece of that many bytes has been taken; perhaps another request `follows`.
  void taken(std::uint32_t bytes, bool follows) noexcept {
    if (!follows || bytes > brief_bytes_max || --left_ == 0) release();
  }
  void release() noexcept {
    if (held_ != nullptr) std::exchange(held_, nullptr)->unlock();
  }

 private:
  // It is free again after some 2 us.
  static constexpr std::uint32_t pieces_max = 16;
  static constexpr std::uint32_t brief_bytes_max = 1024;

  adaptive_mutex* held_ = nullptr;
  std::uint32_t left_ = 0;
};

/// The rest of a quantum, and the lock that the QP keeps during it.
class quantum {
 public:
  explicit quantum(std::uint64_t posts) noexcept : bytes_left_{posts * bytes_per_quantum} {}
  [[nodiscard]] bool over() const noexcept { return requests_left_ == 0 || bytes_left_ == 0; }
  void spend_request() noexcept { --requests_left_; }
  void spend_bytes(std::uint32_t bytes) noexcept {
    bytes_left_ -= std::min<std::uint64_t>(bytes, bytes_left_);
  }
  [[nodiscard]] responder_lock& responder() noexcept { return responder_; }

 private:
  std::uint32_t requests_left_ = requests_per_quantum;
  std::uint64_t bytes_left_;
  responder_lock responder_;
};

[[nodiscard]] inline service service_of(const queue_pair& qp) noexcept {
  switch (qp.type()) {
    case IBV_QPT_RC: return service::rc;
    case IBV_QPT_UC: return service::uc;
    default: return service::ud;
  }
}

/// PSNs that a message takes: one for each packet of the path's MTU, at least one.
[[nodiscard]] inline std::uint32_t packets_of(const queue_pair& qp, std::uint32_t bytes) noexcept {
  const std::uint64_t mtu = std::uint64_t{1} << qp.terms.mtu_shift;
  return std::max(1u, static_cast<std::uint32_t>((bytes + mtu - 1) >> qp.terms.mtu_shift));
}

/// How far `psn` is past `reference`, in 24 bits: negative when it is before it.
[[nodiscard]] inline std::int32_t psn_distance(std::uint32_t reference,
                                               std::uint32_t psn) noexcept {
  return static_cast<std::int32_t>((psn - reference) << 8) >> 8;
}

/// A run of bytes under one key.
struct local_part {
  std::uint64_t address = 0;
  std::uint32_t lkey = 0;
  std::uint32_t bytes = 0;
};

/// Walks a scatter list from some byte on.
class sge_walk {
 public:
  sge_walk(const ibv_sge* sges, std::uint32_t count, std::uint32_t skip) noexcept
      : at_{sges}, end_{sges + count}, within_{skip} {
    settle();
  }
  /// The next at most `bytes_max` bytes of one entry; no bytes when the list is at its end.
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

/// Pins local memory for one copy. A window's key will not do: `access` asks for nothing remote.
[[nodiscard]] bool pin_local(node& local_node, const ibv_pd* pd, const local_part& part,
                             unsigned access, pinned& result) noexcept;
/// Whether all of the request's list may be used now.
[[nodiscard]] bool local_memory_good(queue_pair& qp, std::uint64_t index) noexcept;
/// Copies the request's bytes from `offset` on. False: a bad key, or no memory.
[[nodiscard]] bool gather(queue_pair& qp, std::uint64_t index, std::uint32_t offset, std::byte* to,
                          std::uint32_t bytes) noexcept;
enum class scattered : std::uint8_t { all, bad_sink, bad_source };
[[nodiscard]] scattered scatter(node& local_node, const ibv_pd* pd, sge_walk& walk,
                                const std::byte* from, std::uint32_t bytes) noexcept;
/// An answer's bytes, to the request's list from `offset` on.
[[nodiscard]] bool scatter_answer(queue_pair& qp, std::uint64_t index, std::uint32_t offset,
                                  const std::byte* from, std::uint32_t bytes) noexcept;
/// After a failed copy: whether its source was to blame.
[[nodiscard]] bool readable(const std::byte* from, std::size_t bytes) noexcept;

// ---- requester; all under slot->send. The result of a step says what execute() does next: wait
// for an event, go on with the queue, or go on in the next quantum.

enum class next_step : std::uint8_t { wait, go_on, next_quantum };

/// The request at the head ends with an error; the QP goes to ERR, or SQE on UC and UD. An error
/// that was found here waits until all requests before it were answered.
next_step fail(queue_pair& qp, ibv_wc_status status) noexcept;
/// The head request was taken and done.
next_step succeed(queue_pair& qp) noexcept;
/// The responder did not take the head request, or refused it.
next_step refused(queue_pair& qp, nak_code why, std::uint32_t rnr_timer) noexcept;
/// Starts the timer of check_route() if `route` is a TCP link, which may be cut without notice.
void watch_route(queue_pair& qp, const link& route) noexcept;
/// Ends the oldest request with RETRY_EXC if the route was silent for as long as all tries take.
/// Called when the timer of watch_route() expires, under slot->send.
void check_route(queue_pair& qp) noexcept;
/// Everything unanswered will be sent again.
void rewind(queue_pair& qp) noexcept;
/// A frame for this request, without its place in the message.
[[nodiscard]] frame_header header_for(const queue_pair& qp, const send_request& request) noexcept;
[[nodiscard]] inline bool is_atomic(ibv_wr_opcode opcode) noexcept {
  return opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
}
[[nodiscard]] inline bool is_answered_with_data(ibv_wr_opcode opcode) noexcept {
  return opcode == IBV_WR_RDMA_READ || is_atomic(opcode);
}

// If the quantum ends within a message, the next quantum goes on at `request.offset`.
next_step execute_local(queue_pair& qp, send_request& request,
                        quantum& now) noexcept;  // local_peer.cpp
next_step execute_remote(queue_pair& qp, send_request& request,
                         quantum& now) noexcept;                        // remote_peer.cpp
next_step bind_window(queue_pair& qp, send_request& request) noexcept;  // local_work.cpp
next_step invalidate(queue_pair& qp, send_request& request) noexcept;   // local_work.cpp

/// Ends the grant of a type 2 window that this QP may use. False: there is no such.
bool invalidate_key(queue_pair& qp, std::uint32_t rkey) noexcept;  // local_work.cpp

// ---- responder.cpp, for a peer in this process

/// What a responder says to a piece of a request.
struct reply {
  nak_code nak = nak_code::none;
  std::uint8_t rnr_timer = 0;
  std::uint64_t previous = 0;  ///< atomics
  bool source_fault = false;   ///< the requester's own memory was gone: its LOC_PROT_ERR
};

/// One piece of a request, for a peer in this process. `read_into` is where a READ's bytes go
/// (already checked); a write or send brings `bytes`.
struct local_piece {
  const frame_header&
      header;  ///< first/last/offset/length as in a frame; payload_bytes may exceed a segment
  std::span<const std::byte> bytes;
  std::byte* read_into = nullptr;
};
/// Has `lock` take the peer's.
reply respond(node& local_node, const local_piece& piece, responder_lock& lock) noexcept;

// ---- responder; all under slot->receive

/// A piece of a request, from either kind of peer.
struct incoming {
  const frame_header& header;
  const std::byte* bytes = nullptr;  ///< of a SEND or WRITE
  std::byte* read_into = nullptr;    ///< of a READ, when the peer is in this process
  link* from = nullptr;              ///< null: the peer is in this process
};

/// Whether this QP takes requests of that kind of transport now; who sends them is another matter.
[[nodiscard]] bool listens_to(const queue_pair& qp, const frame_header& header) noexcept;
/// Executes a piece for a QP that listens. `nak_code::dropped`: not taken.
reply take(queue_pair& qp, const incoming& piece) noexcept;

// one_sided.cpp
reply take_write(queue_pair& qp, const incoming& piece) noexcept;
reply take_read(queue_pair& qp, const incoming& piece) noexcept;
reply take_atomic(queue_pair& qp, const incoming& piece) noexcept;

// two_sided.cpp
reply take_send(queue_pair& qp, const incoming& piece) noexcept;
reply take_datagram(queue_pair& qp, const incoming& piece) noexcept;
/// Takes a receive request for the message that begins. False: none is posted.
bool fetch_receive(queue_pair& qp) noexcept;
void complete_receive(queue_pair& qp, const frame_header& header, ibv_wc_status status) noexcept;

// grh.cpp
inline constexpr std::uint32_t grh_bytes = 40;
/// The kind of packet that a datagram was: a receive's `ibv_wc::sl` tells it, as on mlx5, since
/// RoCE has no other use for that field and the GRH does not say where its header starts.
[[nodiscard]] std::uint8_t packet_type(const frame_header& header) noexcept;
/// What a RoCEv2 device puts before a datagram's payload.
void write_grh(const frame_header& header, std::byte (&grh)[grh_bytes]) noexcept;

// answers.cpp
/// Remembers what this request's answer is, and has the link ask for it.
void owe(queue_pair& qp, const incoming& piece, const reply& answer) noexcept;
/// The peer may take our request for a sign that its own were answered, as on a wire, where both go
/// the same way. Without room for an answer the request goes first. Under slot->send.
void answer_before_request(queue_pair& qp) noexcept;
/// Sends the NAK that is due to that link, if any: the next request may earn another. False: no
/// room. Under slot->receive.
[[nodiscard]] bool send_due_nak(queue_pair& qp, link& to) noexcept;
/// Tells a requester that nobody here takes its request. False: no room.
[[nodiscard]] bool reject(link& from, const frame_header& header) noexcept;
/// What QPs of this number that are gone owed to that link. False: no room for all. Under
/// `receive`.
[[nodiscard]] bool send_strays(qp_slot& slot, link& to, std::uint32_t local_qpn) noexcept;

// flush.cpp
void raise_queue_error(queue_pair& qp) noexcept;  ///< an entry was lost: the QP is of no use now
void flush_sends(queue_pair& qp) noexcept;        ///< under slot->send
void flush_receives(queue_pair& qp) noexcept;     ///< under slot->receive

}  // namespace softverbs
