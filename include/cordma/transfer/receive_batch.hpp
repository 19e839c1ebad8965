#pragma once

#include <cordma/coro/scheduler.hpp>

#include <cstdint>

namespace cordma {

class receive_queue;

/// Whose receives wait for one doorbell, while the task that posts them goes through messages that
/// have come already. Thread: the executor's.
/// docs/decisions/0011-one-doorbell.md says why, and when they wait no longer.
class receive_batch {
 public:
  static constexpr std::uint32_t receives_max = 16;

  /// Not `enabled` it is not to be used.
  receive_batch(scheduler& home, bool enabled) noexcept : home_{home}, enabled_{enabled} {}

  /// Whether whose receives wait is told of the end of the turn.
  [[nodiscard]] bool is_open() const noexcept { return enabled_ && home_.is_in_turn(); }
  [[nodiscard]] bool is_empty() const noexcept { return queue_ == nullptr; }
  /// Receives of `q` are the first to wait.
  void begin(receive_queue& q) noexcept;
  void ring() noexcept;
  /// None of `q` wait any more.
  void forget(const receive_queue& q) noexcept {
    if (queue_ == &q) queue_ = nullptr;
  }

 private:
  scheduler& home_;
  const bool enabled_;
  receive_queue* queue_ = nullptr;  // Null: none wait.
};

}  // namespace cordma
