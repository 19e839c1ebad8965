#pragma once

#include <cordma/base/unique_fd.hpp>
#include <cordma/detail/io/fd_watch.hpp>

#include <cstdint>
#include <vector>

namespace cordma {

/// The reactor on epoll, for kernels and containers that forbid io_uring: a timerfd for the alarm,
/// an eventfd for `wake`.
///
/// epoll has one entry for a descriptor, whose events are those of all its watches. An entry is
/// edge-triggered, and every new watch modifies it, which reports what is ready already. The entry
/// of a single `once` is one-shot: the kernel disables it when it fires, without another call.
///
/// A slot's states:
///
/// | state | what moves it | next state |
/// | --- | --- | --- |
/// | unused | `watch` | new watch |
/// | new watch | `tell_new` gives it to the kernel | watching |
/// | new watch | `tell_new`: the kernel refuses the descriptor | firing |
/// | new watch | `tell_new` finds no watch any more | unused |
/// | watching | `collect`: a `once` is ready | firing |
/// | watching | `unwatch` | unused |
/// | firing | `fire`, or `unwatch` before that | unused |
class epoll_reactor final : public reactor {
 public:
  /// \errors `error`: EMFILE and others of the three descriptors.
  epoll_reactor();
  ~epoll_reactor() override;

  [[nodiscard]] const char* name() const noexcept override { return "epoll"; }
  void enable() override {}
  void watch(fd_watch& w) override;
  void unwatch(fd_watch& w) noexcept override;
  void set_alarm(time_point at) noexcept override { alarm_at_ = at; }
  void poll() noexcept override;
  void wait() noexcept override;
  [[nodiscard]] int arm() noexcept override;
  void wake() noexcept override;
  /// Returns epoll's descriptor, which is readable when `wait` would not block.
  [[nodiscard]] int descriptor() const noexcept { return epoll_.get(); }

 private:
  enum class state : unsigned char {
    unused,
    new_watch,  // In `new_`: the kernel does not know of it.
    watching,   // In the list of its descriptor.
    firing,     // In `firing_`, and in no list: a `once` that fires.
  };
  struct slot {
    fd_watch* watch = nullptr;  // Null: nobody listens any more.
    std::uint32_t next = nobody;
    state now = state::unused;
    bool is_due = false;  // In `firing_`, and not called yet.
  };
  struct entry {
    std::uint32_t first = nobody;  // The list of the descriptor's slots.
    bool is_known = false;         // The kernel has an entry, unless the file was closed.
    bool is_one_shot = false;
  };
  static constexpr std::uint32_t nobody = UINT32_MAX;

  void release(std::uint32_t index) noexcept;
  void unlink(std::uint32_t index) noexcept;
  void tell_new() noexcept;
  [[nodiscard]] int tell(std::uint32_t index) noexcept;
  void forget(int fd) noexcept;
  void tell_alarm() noexcept;
  void ring_alarm() noexcept;
  void collect(int timeout_ms) noexcept;
  void collect(int fd, std::uint32_t events) noexcept;
  void fire() noexcept;

  unique_fd epoll_;
  unique_fd wake_;
  unique_fd timer_;
  const std::uint32_t process_;
  std::vector<slot> slots_;
  std::vector<entry> entries_;  // Indexed by descriptor.
  std::vector<std::uint32_t> new_;
  std::vector<std::uint32_t> firing_;
  std::uint32_t unused_ = nobody;
  time_point alarm_at_ = time_point::max();
  time_point timer_at_ = time_point::max();  // The time to which the kernel's timer is set.
  time_point polled_at_{};
};

}  // namespace cordma
