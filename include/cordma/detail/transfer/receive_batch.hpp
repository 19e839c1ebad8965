#pragma once

#include <cordma/coro/scheduler.hpp>
#include <cordma/transfer/message.hpp>

#include <infiniband/verbs.h>

#include <array>
#include <cstdint>

namespace cordma {

class receive_queue;

/// Whose receives wait for one doorbell, while the task that posts them goes through messages that
/// have come already. Thread: the executor's.
/// docs/decisions/0011-one-doorbell.md says why, and when they wait no longer.
class receive_batch {
 public:
  static constexpr std::uint32_t receives_max = 16;

  /// As the device reads one that waits. All are chained.
  struct place {
    ibv_recv_wr wr{};
    std::array<ibv_sge, receive_slices_max> sges;
  };

  /// Not `enabled` it is not to be used.
  receive_batch(scheduler& home, bool enabled) noexcept;
  receive_batch(const receive_batch&) = delete;

  /// Whether whose receives wait is told of the end of the turn.
  [[nodiscard]] bool is_open() const noexcept { return enabled_ && home_.is_in_turn(); }
  [[nodiscard]] bool is_empty() const noexcept { return queue_ == nullptr; }
  /// Receives of `q` are the first to wait.
  void begin(receive_queue& q) noexcept;
  /// Where the next is described that waits behind so many.
  [[nodiscard]] place& behind(std::uint32_t count) noexcept { return places_[count]; }
  /// Gives so many to the device. Returns what ibv_post_recv(3) does; `taken`: how many it took,
  /// all if it does not say.
  [[nodiscard]] int post(ibv_qp* to, std::uint32_t count, std::uint32_t& taken) noexcept;
  void ring() noexcept;
  /// None of `q` wait any more.
  void forget(const receive_queue& q) noexcept {
    if (queue_ == &q) queue_ = nullptr;
  }

 private:
  scheduler& home_;
  const bool enabled_;
  receive_queue* queue_ = nullptr;  // Null: none wait.
  std::array<place, receives_max> places_;
};

}  // namespace cordma
