#pragma once

#include <cordma/base/unique_fd.hpp>
#include <cordma/detail/io/fd_watch.hpp>

#include <liburing.h>

#include <vector>

namespace cordma {

/// The reactor on io_uring: POLL_ADD for readiness, one TIMEOUT for the alarm, an eventfd for
/// `wake`. A request names a slot and the slot's generation. The slot becomes free only after the
/// kernel's last completion for it, so a watch may be destroyed at any time. Every completion of
/// the kernel has a name, and is read. A slot's states:
///
/// | state | what moves it | next state |
/// | --- | --- | --- |
/// | unused | `watch` | to arm |
/// | to arm | `tell_kernel` submits the poll | armed |
/// | to arm | `tell_kernel` finds no watch any more | unused |
/// | armed | `unwatch` | to cancel |
/// | armed | `dispatch_poll`: a `once` fires, or the poll fails | unused |
/// | armed | `dispatch_poll`: the kernel has ended a poll that is to go on | to arm |
/// | to cancel | `tell_kernel` submits the cancel | cancelling |
/// | to cancel | `dispatch_poll`: the kernel has ended the poll | ended |
/// | cancelling | `dispatch_cancel`: the cancel has failed | to cancel |
/// | cancelling | `dispatch_poll`: the kernel has ended the poll | unused |
/// | ended | `tell_kernel` | unused |
class uring_reactor final : public reactor {
 public:
  /// \errors `error`, see `diagnose_uring`.
  explicit uring_reactor(unsigned entries);
  ~uring_reactor() override;

  [[nodiscard]] const char* name() const noexcept override { return "io_uring"; }
  void enable() override;
  void watch(fd_watch& w) override;
  void unwatch(fd_watch& w) noexcept override;
  void set_alarm(time_point at) noexcept override;
  void poll() noexcept override;
  void wait() noexcept override;
  void wake() noexcept override;

 private:
  enum class state : unsigned char {
    unused,
    to_arm,      // Changed: a POLL_ADD is to be submitted.
    armed,       // The kernel watches.
    to_cancel,   // Changed: a cancel is to be submitted.
    cancelling,  // The cancel was submitted; the last completion is awaited.
    ended,       // Changed, but the kernel has ended the poll meanwhile.
  };
  struct slot {
    fd_watch* watch = nullptr;  // Null: nobody listens any more.
    std::uint32_t generation = 0;
    std::uint32_t next = nobody;  // Next slot in the list of unused, or of changed, slots.
    state now = state::unused;
  };
  static constexpr std::uint32_t nobody = UINT32_MAX;
  /// Bit of a name: the completion is of the slot's cancel, not of its poll.
  static constexpr std::uint32_t of_cancel = std::uint32_t{1} << 31;
  // Names that no slot has.
  static constexpr std::uint64_t alarm = nobody;
  static constexpr std::uint64_t alarm_update = alarm | std::uint64_t{1} << 32;

  [[nodiscard]] std::uint64_t name_of(std::uint32_t index) const noexcept {
    return std::uint64_t{slots_[index].generation} << 32 | index;
  }
  void change(std::uint32_t index, state to) noexcept;
  void release(std::uint32_t index) noexcept;
  [[nodiscard]] io_uring_sqe* next_sqe() noexcept;
  [[nodiscard]] bool tell_kernel() noexcept;
  [[nodiscard]] bool tell_kernel(std::uint32_t index) noexcept;
  [[nodiscard]] bool tell_alarm() noexcept;
  void enter() noexcept;
  /// Returns true if the kernel has work that runs on this thread, when the reactor enters.
  [[nodiscard]] bool is_kernel_waiting() const noexcept;
  void reap() noexcept;
  void dispatch(std::uint64_t name, int outcome, bool more) noexcept;
  void dispatch_cancel(std::uint64_t name, int outcome) noexcept;
  void dispatch_poll(std::uint64_t name, int outcome, bool more) noexcept;
  static void on_wake(fd_watch& self) noexcept;

  unique_fd wake_fd_;
  fd_watch wake_watch_;
  io_uring ring_{};
  std::vector<slot> slots_;
  std::uint32_t unused_ = nobody;
  std::uint32_t changed_ = nobody;
  __kernel_timespec alarm_at_{};  // The kernel reads it when the request is submitted.
  bool alarm_armed_ = false;
  bool alarm_changed_ = false;
};

}  // namespace cordma
