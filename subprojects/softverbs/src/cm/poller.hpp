#pragma once

#include "link/unique_fd.hpp"
#include "node/deadline_heap.hpp"

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <vector>

namespace softverbs::cm {

class poller;

/// True for the errno values of a call that is to be made again when the descriptor has an event.
[[nodiscard]] constexpr bool would_block(int error) noexcept {
  return error == EAGAIN || error == EWOULDBLOCK || error == EINTR;
}

/// An object with a descriptor or a deadline in a poller. Not movable.
class watched {
 public:
  using time = std::chrono::steady_clock::time_point;
  watched(const watched&) = delete;
  watched& operator=(const watched&) = delete;

  /// The descriptor has these events. May destroy this object, and others.
  virtual void on_event(std::uint32_t events, time now) noexcept = 0;
  /// The deadline has come. May destroy this object, and others.
  virtual void on_time(time now) noexcept = 0;
  /// In a forked child: closes the copies of the parent's descriptors.
  virtual void close_copies() noexcept = 0;

 protected:
  explicit watched(poller& by) noexcept;
  ~watched();

  [[nodiscard]] bool is_registered() const noexcept { return index_ != none; }
  /// Watches the descriptor for other events than before, or starts to. False: out of memory.
  bool watch(int fd, std::uint32_t events) noexcept;
  void unwatch(int fd) noexcept;
  /// Replaces the deadline; max(): none.
  void set_deadline(time when) noexcept;

 private:
  friend class poller;
  static constexpr std::uint16_t none = 0xffff;
  poller& poller_;
  std::uint16_t index_ = none;
};

/// Descriptors and deadlines of the transport: one epoll, served by run(). Callers lock.
class poller {
 public:
  using time = watched::time;

  [[nodiscard]] bool open() noexcept;  ///< false: out of descriptors
  [[nodiscard]] bool is_open() const noexcept { return static_cast<bool>(epoll_); }
  [[nodiscard]] int descriptor() const noexcept { return epoll_.get(); }
  [[nodiscard]] time deadline() const noexcept { return deadlines_.next(); }
  /// Calls each object that has events or is due.
  void run(time now) noexcept;
  /// In a forked child: closes all copies of descriptors. Nothing has events any more.
  void abandon() noexcept;

 private:
  friend class watched;
  struct slot {
    watched* target = nullptr;
    std::uint32_t generation = 0;
  };
  std::uint16_t take(watched& target) noexcept;
  void free(std::uint16_t index) noexcept;

  unique_fd epoll_;
  unique_fd wake_;  ///< readable when a deadline moved forward outside run()
  bool is_running_ = false;
  std::vector<slot> slots_;
  std::vector<std::uint16_t> free_;
  deadline_heap deadlines_;
};

}  // namespace softverbs::cm
