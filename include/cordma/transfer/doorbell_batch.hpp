#pragma once

#include <cordma/coro/scheduler.hpp>
#include <cordma/transfer/receive_batch.hpp>

#include <infiniband/verbs.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

namespace cordma {

class send_queue;

/// What the tasks of one turn await of one queue pair: it goes to the device with one doorbell,
/// when the last of them has gone on, the batch is full, or something else is posted. Only the
/// queue pair that posted last begins one, or a long request, beside which that costs nothing:
/// those that take turns with short ones batch nothing, and pay nothing.
/// Thread: the executor's. docs/decisions/0011-one-doorbell.md says why.
class doorbell_batch final : private turn_end {
 public:
  static constexpr std::uint32_t requests_max = 16;
  /// A longer request begins a batch itself, and what is before it keeps its completion entry.
  static constexpr std::size_t short_bytes_max = 4096;

  /// Not `enabled` it takes nothing.
  doorbell_batch(scheduler& home, bool enabled) noexcept
      : home_{home}, enabled_{enabled}, receives_{home, enabled} {}

  [[nodiscard]] scheduler& home() const noexcept { return home_; }
  /// Those of the same queue pairs, which go before anything that is posted to send.
  [[nodiscard]] receive_batch& receives() noexcept { return receives_; }

 private:
  friend class send_queue;

  /// Whether others are there to wait with, or to wait for.
  [[nodiscard]] bool is_worth_while() const noexcept {
    return count_ != 0 || (enabled_ && home_.others_follow());
  }
  /// Whether a request of `q` waits here, if that is worth while.
  [[nodiscard]] bool takes(const send_queue& q, bool is_long) const noexcept {
    return last_ == &q || (is_long && count_ == 0);
  }
  [[nodiscard]] bool is_complete(std::uint32_t count) const noexcept {
    return count == requests_max || !home_.others_follow();
  }
  /// `q` posts, at once.
  void passes(send_queue& q) noexcept {
    if (count_ != 0 || !receives_.is_empty()) [[unlikely]]
      ring_before(q);
    passes_alone(q);
  }
  /// The same while nothing waits.
  void passes_alone(send_queue& q) noexcept { last_ = &q; }
  [[nodiscard]] bool is_of(const send_queue& q) const noexcept {
    return count_ != 0 && last_ == &q;
  }
  void begin(send_queue& q, std::uint32_t signaled_before) noexcept {
    last_ = &q;
    signaled_before_ = signaled_before;
    home_.at_turn_end(*this);
  }
  /// The next, which is filled, goes behind the `count` before it. Its completion entry tells of
  /// them, too, unless it `is_slow`, as it is long, or waits for the peer.
  void add_to(std::uint32_t count, bool is_slow) noexcept {
    if (count != 0) {
      ibv_send_wr& before = wrs_[count - 1];
      before.next = &wrs_[count];
      if (!is_slow) before.send_flags &= ~unsigned{IBV_SEND_SIGNALED};
    }
    count_ = count + 1;
  }
  [[nodiscard]] std::span<ibv_send_wr> take() noexcept {
    turn_end::unlink();
    return {wrs_.data(), std::exchange(count_, 0)};
  }
  void ring_before(send_queue& posts) noexcept;
  void on_turn_end() noexcept override;

  scheduler& home_;
  const bool enabled_;
  std::uint32_t count_ = 0;
  std::uint32_t signaled_before_ = 0;  // The last before them that has a completion entry.
  send_queue* last_ = nullptr;         // It posted last; of those that wait here, the queue.
  receive_batch receives_;
  std::array<ibv_send_wr, requests_max> wrs_;
  std::array<ibv_sge, requests_max> sges_;
};

}  // namespace cordma
