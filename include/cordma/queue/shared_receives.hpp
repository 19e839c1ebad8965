#pragma once

#include <cordma/coro/scheduler.hpp>
#include <cordma/detail/base/counter.hpp>
#include <cordma/detail/base/export.hpp>
#include <cordma/detail/base/intrusive_list.hpp>
#include <cordma/detail/queue/receive_share.hpp>
#include <cordma/memory/mr_allocator.hpp>
#include <cordma/verbs/shared_receive_queue.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace cordma {

struct shared_receives_options {
  /// Of all queue pairs together. Each completion queue that one of them is on needs as many
  /// entries.
  std::uint32_t buffers = 1024;
  std::size_t buffer_bytes = 4096;  ///< Of each; a longer message breaks its queue pair.
  /// Buffers that each queue pair is sure of, from its making on: so many queue pairs as
  /// `buffers` / `share_min` have room.
  std::uint32_t share_min = 8;
};

/// Receive buffers of one piece of registered memory that many queue pairs share by a shared
/// receive queue: what an idle one needs is `share_min` of them. Peers are bound by credits
/// (`receive_share`); one that does not keep to its own is cut off by the first message too many,
/// whose buffer is free again at once, but may make others' peers try again.
/// Outlives its queue pairs, and what their messages are kept by. \thread the executor's.
/// \cost of a message: what a queue pair's own receives cost, and finding the queue pair by number.
class CORDMA_EXPORT shared_receives : private timer {
 public:
  static constexpr std::uint32_t buffers_max = 1u << 20;
  static constexpr std::size_t buffer_bytes_max = std::size_t{1} << 30;
  /// How long one that was asked to shrink may take before the next is asked: whoever does not
  /// answer does not hold up all others.
  static constexpr std::chrono::milliseconds ask_interval{10};

  /// \errors  errc::not_supported: the device has no shared receive queues. errc::limit_exceeded:
  ///   an option, with its limits. What the allocator, of the same domain, throws.
  shared_receives(verbs::protection_domain& pd, mr_allocator& memory,
                  const shared_receives_options& options = {});
  shared_receives(const shared_receives&) = delete;
  shared_receives& operator=(const shared_receives&) = delete;
  ~shared_receives();

  [[nodiscard]] std::uint32_t buffers() const noexcept { return options_.buffers; }
  [[nodiscard]] std::size_t buffer_bytes() const noexcept { return options_.buffer_bytes; }
  [[nodiscard]] std::uint32_t share_min() const noexcept { return options_.share_min; }
  /// From one buffer's begin to the next one's.
  [[nodiscard]] std::size_t stride_bytes() const noexcept { return stride_; }
  /// Registered memory that they are.
  [[nodiscard]] std::size_t memory_bytes() const noexcept { return memory_.size_bytes(); }
  /// Buffers that are promised: credit of queue pairs, and what is held of those that are gone.
  [[nodiscard]] std::uint32_t promised() const noexcept { return promised_; }
  [[nodiscard]] std::uint32_t queue_pairs() const noexcept { return shares_; }

  [[nodiscard]] std::span<std::byte> bytes(std::uint32_t number) noexcept {
    return memory_.bytes().subspan(number * stride_, options_.buffer_bytes);
  }
  /// The same as registered memory. \errors errc::out_of_range.
  [[nodiscard]] const_local_mr_slice slice(std::uint32_t number, std::size_t offset,
                                           std::size_t length) const {
    return memory_.slice(number * stride_, options_.buffer_bytes).slice(offset, length);
  }
  /// A message's buffer, once: it is for the next one, of whichever queue pair. When the device
  /// refuses it, its queue pair breaks. The queue pair may be gone.
  void give_back(std::uint32_t number) noexcept;

  [[nodiscard]] verbs::shared_receive_queue& verbs() noexcept { return queue_; }
  [[nodiscard]] const ibv_pd* pd() const noexcept { return pd_.native_handle(); }

  /// Receives given to the device so far; their ends are counted where the queue pairs' are, but
  /// for those that went with a queue that was made anew (`withdrawn`). \thread any.
  [[nodiscard]] std::uint64_t posted() const noexcept { return posted_.value(); }
  [[nodiscard]] std::uint64_t withdrawn() const noexcept { return withdrawn_.value(); }

  // For the queue pair.
  /// A buffer that the device gave back and nobody took.
  void put_back(std::uint32_t number) noexcept;

 private:
  friend class receive_share;
  using holder = detail::receive_holder;

  [[nodiscard]] verbs::shared_receive_queue filled_queue();
  [[nodiscard]] int post(verbs::shared_receive_queue& queue, std::uint32_t number) noexcept;
  void renew() noexcept;
  /// Somebody, but the only one who wants more, is asked for what it does not use.
  void reclaim() noexcept;
  /// Those who wanted more try again, not before `when`.
  void retry_at(time_point when) noexcept;
  static void on_retry(timer& self) noexcept;
  /// It may be gone before the next queue pair comes.
  void leave_home() noexcept {
    disarm();
    home_ = nullptr;
  }
  /// There are more buffers that nobody was promised.
  void freed(std::uint32_t count) noexcept {
    promised_ -= count;
    if (!wishes_.empty()) [[unlikely]]
      retry_at({});
  }
  /// Promises that leave enough for newcomers.
  [[nodiscard]] std::uint32_t grown_max() const noexcept {
    constexpr std::uint32_t kept_free = 8;
    return options_.buffers - options_.buffers / kept_free;
  }
  void lose(std::uint32_t number, int error_number) noexcept;

  // Do not change once made.
  verbs::protection_domain& pd_;
  const shared_receives_options options_;
  const std::size_t stride_;
  local_mr memory_;

  std::vector<holder*> holders_;  ///< by number; null: the device has it
  counter posted_;
  counter withdrawn_;
  holder orphans_;  ///< whose queue pairs are gone
  verbs::shared_receive_queue queue_;
  std::uint32_t promised_ = 0;
  std::uint32_t shares_ = 0;
  intrusive_list<receive_share> all_;
  std::uint64_t uses_ = 0;  ///< messages so far
  intrusive_list<receive_share::wish> wishes_;
  scheduler* home_ = nullptr;  ///< of its queue pairs, while there are any
  time_point ask_next_{};      ///< not before: somebody has been asked, or nobody was found
  time_point retry_at_{};      ///< while it is armed
  bool is_retrying_ = false;
  bool is_worth_asking_ = true;  ///< somebody may have more than it needs
  std::uint32_t lost_ = 0;       ///< of the held: the device would not have them back
  bool may_lack_some_ = false;   ///< a queue pair ended before the device told what it took
};

}  // namespace cordma
