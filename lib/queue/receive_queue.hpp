#pragma once

#include "completion_queue_driver.hpp"
#include "held_memory.hpp"
#include "transfer_tally.hpp"

#include <cordma/detail/base/intrusive_list.hpp>
#include <cordma/detail/base/probe.hpp>
#include <cordma/detail/queue/receive_operation.hpp>
#include <cordma/memory/slice.hpp>
#include <cordma/queue/message.hpp>
#include <cordma/verbs/queue_pair.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace cordma {

/// The receive side of a queue pair: a ring of buffers in posting order, in which messages wait
/// until somebody takes them. Thread: the executor's. Cost: no allocation per receive.
class alignas(64) receive_queue {
 public:
  /// `qp`, on the queue of `driver`, and `held`, of that and of its protection domain, outlive it.
  receive_queue(verbs::queue_pair& qp, completion_queue_driver& driver, held_memory& held);
  receive_queue(const receive_queue&) = delete;
  receive_queue& operator=(const receive_queue&) = delete;
  ~receive_queue();

  /// Gives a buffer to the device; a later message lands in it.
  /// \errors  errc::receive_queue_full, stale_slice, access_denied, too_many_slices,
  ///   wrong_protection_domain, disconnected; an errno of ibv_post_recv(3).
  void post(std::span<const local_mr_slice> buffer);

  /// The device says that the oldest buffer has a message, while none has failed. False: nothing
  /// has happened, it is of a life before.
  bool succeeded(const ibv_wc& wc) noexcept;
  /// The same of one that may have failed. Whether it has.
  bool complete(std::uint32_t sequence, const ibv_wc& wc) noexcept;
  // As in `send_queue`.
  void end_all(const request_outcome& how) noexcept;
  void release_slots() noexcept;
  /// The same as `end_all` of one that will not be used; if it never was, its ring is freed.
  void refuse_all(const request_outcome& how) noexcept;

  [[nodiscard]] std::uint32_t depth() const noexcept { return depth_; }
  [[nodiscard]] std::uint32_t posted() const noexcept { return tail_ - completed_ - flushed_; }
  /// Messages that nobody has taken yet.
  [[nodiscard]] std::uint32_t pending_messages() const noexcept { return completed_ - head_; }
  void set_wr_id_base(std::uint64_t base) noexcept { wr_id_base_ = base; }
  [[nodiscard]] scheduler& home() const noexcept { return driver_.home(); }

 private:
  friend class receive_operation;
  struct slot {
    local_mr_slice slice;  // The first, mostly the only one.
    std::uint32_t size_bytes = 0;
    std::uint32_t immediate = 0;
    std::uint8_t slice_count = 0;
    bool has_immediate = false;
    bool is_write = false;
    bool holds_memory = false;
  };

  slot& at(std::uint32_t sequence) noexcept { return slots_[sequence & mask_]; }
  local_mr_slice* more_of(std::uint32_t sequence) noexcept {
    return more_slices_.data() + std::size_t{sequence & mask_} * (slices_max_ - 1);
  }
  [[nodiscard]] bool has_room() const noexcept { return tail_ - head_ < at_once_max_; }
  /// What that depends on has changed.
  void set_at_once_max() noexcept { at_once_max_ = closed_ || !want_room_.empty() ? 0 : depth_; }
  /// Whether one is there that nobody was promised.
  [[nodiscard]] bool has_message() const noexcept { return free_count_ != 0; }
  /// No message is longer (IBTA 9.2): what a buffer has beyond it the device need not know.
  static constexpr std::size_t message_bytes_max = std::size_t{1} << 31;
  /// As the device reads it. Returns how many are not empty.
  static int describe(std::span<const local_mr_slice> buffer, ibv_sge* to) noexcept;
  void probe_posted(std::uint32_t sequence) const noexcept {
    CORDMA_PROBE3(post, num_, unsigned(request_kind::receive), sequence);
  }
  /// Why one is not posted, in a register.
  struct reason {
    reason() noexcept = default;
    reason(errc why) noexcept : code{why} {}
    explicit reason(int rc) noexcept : device_says{rc} {}
    explicit operator bool() const noexcept { return code != errc{} || device_says != 0; }
    [[nodiscard]] std::error_code to_code() const noexcept;

    errc code{};
    int device_says = 0;  // An errno.
  };
  /// Posts a buffer; there is room. None: it is posted.
  reason try_post(std::span<const local_mr_slice> buffer) noexcept;
  /// Acquires the memory of a buffer; of none of its slices when one is refused.
  [[nodiscard]] errc acquire(std::span<const local_mr_slice> buffer) noexcept;
  /// What the slot of that number holds is released.
  void release(slot& s, std::uint32_t sequence) noexcept;
  void release(std::span<const local_mr_slice> slices) noexcept;
  [[noreturn, gnu::cold]] void throw_refused(reason why, std::size_t slices);
  /// Of a buffer of so many slices.
  [[gnu::cold]] request_outcome refusal(reason why, std::size_t slices) noexcept;

  void promise(receive_operation& to) noexcept;
  /// To the first who waits.
  void promise_to_next() noexcept;
  /// Promises it a message, or ends it without one. False: it waits for one.
  bool serve(receive_operation& o) noexcept;
  /// The oldest message, of which there is one.
  message take() noexcept;
  /// It no longer waits.
  void leave(receive_operation& o) noexcept;
  void give_room() noexcept;

  // Do not change once made.
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
  std::uint32_t at_once_max_;     // The depth; 0 while others wait for room, and once it is closed.
  std::uint32_t free_count_ = 0;  // Of the messages, those that nobody was promised.
  held_memory& held_;
  std::vector<slot> slots_;
  std::vector<local_mr_slice> more_slices_;  // One less than `slices_max_` a slot.
  intrusive_list<receive_operation> want_room_;
  // Whoever waits for a message finds none that is not promised: first those who have a promise.
  intrusive_list<receive_operation> takers_;
  receive_operation* first_waiting_ = nullptr;  // Of those. Null: nobody waits.
  std::optional<request_outcome> closed_;
};

}  // namespace cordma
