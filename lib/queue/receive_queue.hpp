#pragma once

#include "completion_queue_driver.hpp"
#include "datagram_headers.hpp"
#include "mr_hold_cache.hpp"
#include "transfer_tally.hpp"

#include <cordma/detail/base/intrusive_list.hpp>
#include <cordma/detail/base/probe.hpp>
#include <cordma/detail/queue/receive_operation.hpp>
#include <cordma/memory/slice.hpp>
#include <cordma/queue/message.hpp>
#include <cordma/verbs/queue_pair.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace cordma {

/// The receive side of a queue pair: a ring of buffers in posting order, in which messages wait
/// until somebody takes them. \thread the executor's. \cost no allocation per receive.
class alignas(64) receive_queue {
 public:
  /// Makes a queue. `qp`, which is on the queue of `driver`, and `held`, of that and of the
  /// protection domain, outlive it. `headers` are those of datagrams; null: there are none.
  receive_queue(verbs::queue_pair& qp, completion_queue_driver& driver, mr_hold_cache& held,
                std::unique_ptr<detail::datagram_headers> headers = nullptr);
  receive_queue(const receive_queue&) = delete;
  receive_queue& operator=(const receive_queue&) = delete;
  ~receive_queue();

  /// Gives a buffer to the device; a later message lands in it.
  /// \errors errc::receive_queue_full, stale_slice, access_denied, too_many_slices,
  ///   wrong_protection_domain, disconnected; an errno of ibv_post_recv(3).
  void post(std::span<const local_mr_slice> buffer);

  /// Completes the oldest buffer with a message, while no receive has failed. Returns false, and
  /// changes nothing, if the CQE is of an earlier connection epoch.
  bool succeeded(const ibv_wc& wc) noexcept;
  /// Completes a receive that may have failed. Returns true if it failed.
  bool complete(std::uint32_t sequence, const ibv_wc& wc) noexcept;
  // Ends everything with `how`, as `send_queue::end_all` does.
  void end_all(const request_outcome& how) noexcept;
  void release_slots() noexcept;
  /// Ends everything with `how` in a queue that will not be used; frees the ring if it never was.
  void refuse_all(const request_outcome& how) noexcept;

  /// Returns what came in front of the datagram that is taken next.
  [[nodiscard]] const detail::datagram_header& next_header() const noexcept {
    return headers_->of(head_ & mask_);
  }

  [[nodiscard]] std::uint32_t depth() const noexcept { return depth_; }
  [[nodiscard]] std::uint32_t posted() const noexcept { return tail_ - completed_ - flushed_; }
  /// Returns the number of messages that nobody has taken yet.
  [[nodiscard]] std::uint32_t pending_messages() const noexcept { return completed_ - head_; }
  void set_wr_id_base(std::uint64_t base) noexcept { wr_id_base_ = base; }
  [[nodiscard]] cordma::scheduler& scheduler() const noexcept { return driver_.executor(); }

 private:
  friend class receive_operation;
  message& at(std::uint32_t sequence) noexcept { return slots_[sequence & mask_]; }
  [[nodiscard]] bool has_room() const noexcept { return tail_ - head_ < at_once_max_; }
  /// Recomputes `at_once_max_` after its inputs changed.
  void set_at_once_max() noexcept {
    at_once_max_ = closed_.has_failed() || !want_room_.empty() ? 0 : depth_;
  }
  /// Longest message (IBTA 9.2). The device need not know the part of a buffer beyond it.
  static constexpr std::size_t message_bytes_max = std::size_t{1} << 31;
  /// Posts a buffer; there is room.
  inline request_outcome try_post(std::span<const local_mr_slice> buffer) noexcept;
  void release(const message& slot) noexcept {
    for (const local_mr_slice& slice : slot.slices)
      if (slice.is_held()) held_.release(*slice.block());
  }
  [[noreturn, gnu::cold]] void throw_refused(const request_outcome& how);

  /// Posts the buffer of `o`, for which there is room, and serves `o` as `serve` does.
  bool post_and_serve(receive_operation& o) noexcept;
  void promise(receive_operation& to) noexcept;
  /// Promises a message to the first operation that waits.
  void promise_to_next() noexcept;
  /// Promises `o` a message, or ends it without one. Returns false if it waits for a message.
  bool serve(receive_operation& o) noexcept;
  /// Takes the oldest message; there must be one.
  void take(message& into) noexcept;
  /// Removes `o`, which no longer waits.
  void leave(receive_operation& o) noexcept;
  void give_room() noexcept;

  // The following members do not change after construction.
  completion_queue_driver& driver_;
  ibv_qp* const native_;
  const std::uint32_t num_;
  transfer_tally& tally_;
  std::uint32_t depth_;
  std::uint32_t mask_;
  std::uint32_t slices_max_;
  std::uint64_t wr_id_base_ = 0;

  // Sequence numbers: [head, completed) hold messages; of [completed, tail) the first `flushed`
  // came back without one, the rest are with the device.
  std::uint32_t head_ = sequence_first;
  std::uint32_t completed_ = sequence_first;
  std::uint32_t flushed_ = 0;
  std::uint32_t tail_ = sequence_first;
  // The depth; 0 while operations wait for room, and once the queue is closed.
  std::uint32_t at_once_max_;
  std::uint32_t free_count_ = 0;  // Messages that nobody was promised.
  const std::unique_ptr<detail::datagram_headers> headers_;
  mr_hold_cache& held_;
  std::vector<message> slots_;
  intrusive_list<receive_operation> want_room_;
  // Operations that wait for a message; those with a promise come first. While one waits, no
  // message is unpromised.
  intrusive_list<receive_operation> takers_;
  // First of `takers_` without a promise; null: nobody waits.
  receive_operation* first_waiting_ = nullptr;
  request_outcome closed_;  // How every operation ends, once the queue is closed.
};

}  // namespace cordma
