#pragma once

#include <cordma/coro/scheduler.hpp>

#include <cstdint>
#include <utility>

namespace cordma {

class receive_queue;

/// Whose receives wait for one doorbell, while the task that posts them goes through messages that
/// have come already. Thread: the executor's.
/// docs/decisions/0011-one-doorbell.md says why, and when they wait no longer.
class receive_batch final : private turn_end {
 public:
  static constexpr std::uint32_t receives_max = 16;

  /// Not `enabled` it is not to be used.
  receive_batch(scheduler& home, bool enabled) noexcept : home_{home}, enabled_{enabled} {}

  /// Whether what waits will be rung for, at the end of a turn if not before.
  [[nodiscard]] bool is_open() const noexcept { return enabled_ && home_.is_in_turn(); }
  /// Receives of `q` are the first to wait.
  void begin(receive_queue& q) noexcept {
    ring();
    queue_ = &q;
    home_.at_turn_end(*this);
  }
  [[nodiscard]] bool is_empty() const noexcept { return queue_ == nullptr; }
  void ring() noexcept {
    if (!is_empty()) ring_for(*std::exchange(queue_, nullptr));
  }

 private:
  void ring_for(receive_queue& q) noexcept;
  void on_turn_end() noexcept override { ring(); }

  scheduler& home_;
  const bool enabled_;
  receive_queue* queue_ = nullptr;  // Null: none wait.
};

}  // namespace cordma
