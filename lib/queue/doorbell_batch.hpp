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

/// What the tasks of one turn await of one queue pair: it goes to the device with one doorbell,
/// when the last of them has gone on, the batch is full, or something else is posted. Only the
/// queue pair that posted last begins one, or a long request, beside which that costs nothing:
/// those that take turns with short ones batch nothing, and pay nothing.
/// Thread: the executor's. docs/decisions/0011-one-doorbell.md says why.
class doorbell_batch final : private detail::turn_end {
 public:
  static constexpr std::uint32_t requests_max = 16;
  /// A longer request begins a batch itself, and what is before it keeps its completion entry.
  static constexpr std::size_t short_bytes_max = 4096;

  /// Not `enabled` it takes nothing.
  doorbell_batch(scheduler& home, bool enabled) noexcept : home_{home}, enabled_{enabled} {}
  doorbell_batch(const doorbell_batch&) = delete;

  [[nodiscard]] scheduler& home() const noexcept { return home_; }

 private:
  friend class send_queue;
  struct entry {
    ibv_send_wr wr;
    ibv_sge sge;
  };

  /// Whether others are there to wait with, or to wait for.
  [[nodiscard]] bool is_worth_while() const noexcept {
    return count_ != 0 || (enabled_ && home_.others_follow());
  }
  /// Whether a request of `q` waits here, if that is worth while.
  [[nodiscard]] bool takes(const send_queue& q, bool is_long) const noexcept {
    return last_ == &q || (is_long && count_ == 0);
  }
  [[nodiscard]] bool is_empty() const noexcept { return count_ == 0; }
  [[nodiscard]] bool is_complete() const noexcept {
    return count_ == requests_max || !home_.others_follow();
  }
  /// `q` posts, at once.
  void passes(send_queue& q) noexcept {
    if (count_ != 0) [[unlikely]]
      ring_before(q);
    last_ = &q;
  }
  [[nodiscard]] bool is_of(const send_queue& q) const noexcept {
    return count_ != 0 && last_ == &q;
  }
  /// Of `q`, whose request of that number is the last before it with a completion entry.
  void begin(send_queue& q, std::uint32_t signaled_before) noexcept {
    last_ = &q;
    signaled_before_ = signaled_before;
    home_.at_turn_end(*this);
  }
  /// Storage of the next.
  [[nodiscard]] entry& next() noexcept { return entries_[count_]; }
  /// That, or another, with its flags and its number, is the last. Its completion entry tells of
  /// the one before it, too, unless this `is_slow`, as it is long, or waits for the peer.
  void add(ibv_send_wr& wr, request_kind kind, bool is_slow) noexcept {
    if (count_ == 0) [[unlikely]] {
      first_wr_ = &wr;
    } else {
      last_wr_->next = &wr;
      if (!is_slow) last_wr_->send_flags &= ~unsigned{IBV_SEND_SIGNALED};
    }
    last_wr_ = &wr;
    ++count_;
    ++counts_[std::size_t(kind)];
  }
  /// They go. How many they are.
  [[nodiscard]] std::uint32_t close() noexcept {
    turn_end::unlink();
    last_wr_->next = nullptr;
    return std::exchange(count_, 0);
  }
  /// They have gone.
  void count_in(transfer_tally& tally) noexcept {
    for (std::size_t kind = 0; kind < counts_.size(); ++kind)
      tally.posted(request_kind(kind), std::exchange(counts_[kind], 0));
  }
  void ring_before(send_queue& posts) noexcept;
  void on_turn_end() noexcept override;

  scheduler& home_;
  const bool enabled_;
  std::uint32_t count_ = 0;
  std::uint32_t signaled_before_ = 0;  // The last before them that has a completion entry.
  send_queue* last_ = nullptr;         // It posted last; of those that wait here, the queue.
  ibv_send_wr* first_wr_ = nullptr;
  ibv_send_wr* last_wr_ = nullptr;
  std::array<std::uint32_t, detail::data_kinds> counts_{};
  std::array<entry, requests_max> entries_;
};

}  // namespace cordma
