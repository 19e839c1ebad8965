#pragma once

#include "transfer_tally.hpp"

#include <cordma/coro/scheduler.hpp>
#include <cordma/queue/work_request.hpp>

#include <infiniband/verbs.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace cordma {

class send_queue;

/// Groups what the tasks of one event-loop iteration await on one queue pair. The group is posted
/// with one doorbell when the last task has continued, the group is full, or something else is
/// posted. A group begins with a long request, or on the queue pair that posted last. Queue pairs
/// that alternate with short requests group nothing, and pay nothing.
/// docs/decisions/0011-one-doorbell.md gives the reasons. \thread the executor's.
class doorbell_batch final : private detail::iteration_end_hook {
 public:
  static constexpr std::uint32_t requests_max = 16;
  /// A longer request begins a group itself, and the request before it keeps its CQE.
  static constexpr std::size_t short_bytes_max = 4096;

  /// A batch that is not `enabled` takes nothing.
  doorbell_batch(cordma::scheduler& scheduler, bool enabled) noexcept
      : scheduler_{scheduler}, enabled_{enabled} {}
  doorbell_batch(const doorbell_batch&) = delete;

  [[nodiscard]] cordma::scheduler& scheduler() const noexcept { return scheduler_; }

 private:
  friend class send_queue;
  struct entry {
    ibv_send_wr wr;
    ibv_sge sge;
  };

  /// Returns true if other tasks are ready to share the doorbell, or requests already wait.
  [[nodiscard]] bool is_worth_while() const noexcept {
    return count_ != 0 || (enabled_ && scheduler_.more_ready());
  }
  /// Returns true if a request of `q` joins the group, provided that grouping is worthwhile.
  [[nodiscard]] bool takes(const send_queue& q, bool is_long) const noexcept {
    return last_ == &q || (is_long && count_ == 0);
  }
  [[nodiscard]] bool is_empty() const noexcept { return count_ == 0; }
  [[nodiscard]] bool is_complete() const noexcept {
    return count_ == requests_max || !scheduler_.more_ready();
  }
  /// Notes that `q` posts at once.
  void passes(send_queue& q) noexcept {
    if (count_ != 0) [[unlikely]]
      ring_before(q);
    last_ = &q;
  }
  [[nodiscard]] bool is_of(const send_queue& q) const noexcept {
    return count_ != 0 && last_ == &q;
  }
  /// Begins a group of `q`, whose last signaled request before it has that number.
  void begin(send_queue& q, std::uint32_t signaled_before) noexcept {
    last_ = &q;
    signaled_before_ = signaled_before;
    scheduler_.at_iteration_end(*this);
  }
  /// Returns the storage of the next request.
  [[nodiscard]] entry& next() noexcept { return entries_[count_]; }
  [[nodiscard]] ibv_send_wr& first() noexcept { return entries_[0].wr; }
  /// Adds the request in `next()`. Unless `is_slow` (the request is long, or waits for the peer),
  /// its CQE also covers the previous one.
  void add(request_kind kind, bool is_slow) noexcept {
    ibv_send_wr& wr = entries_[count_].wr;
    if (count_ != 0) [[likely]] {
      ibv_send_wr& before = entries_[count_ - 1].wr;
      before.next = &wr;
      if (!is_slow) before.send_flags &= ~unsigned{IBV_SEND_SIGNALED};
    }
    ++count_;
    ++counts_[std::size_t(kind)];
  }
  /// Closes the group and returns its size, for posting.
  [[nodiscard]] std::uint32_t close() noexcept {
    iteration_end_hook::unlink();
    return std::exchange(count_, 0);
  }
  /// Counts the posted group.
  void count_in(transfer_tally& tally) noexcept {
    for (std::size_t kind = 0; kind < counts_.size(); ++kind)
      tally.posted(request_kind(kind), std::exchange(counts_[kind], 0));
  }
  void ring_before(send_queue& posts) noexcept;
  void on_iteration_end() noexcept override;

  cordma::scheduler& scheduler_;
  const bool enabled_;
  std::uint32_t count_ = 0;
  std::uint32_t signaled_before_ = 0;  // Number of the last signaled request before the group.
  // The queue that posted last; the group's queue while there is a group.
  send_queue* last_ = nullptr;
  std::array<std::uint32_t, detail::data_kinds> counts_{};
  std::array<entry, requests_max> entries_;
};

}  // namespace cordma
