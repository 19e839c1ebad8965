#pragma once

#include <cordma/coro/channel.hpp>
#include <cordma/detail/io/fd_watch.hpp>
#include <cordma/detail/queue/send_operation.hpp>
#include <cordma/io/executor.hpp>
#include <cordma/verbs/device.hpp>

#include <vector>

namespace cordma {

class completion_queue_driver;

/// Reads what a device reports on its own (ibv_get_async_event(3)) and takes it to the object it
/// names: an overrun completion queue fails every queue pair on it, a broken queue pair fails, a
/// fatal device fails all. Offers the same events to the program.
/// \thread the executor's. \cost nothing until the device reports something.
class async_events {
 public:
  /// Events kept for `next`; when nobody takes them, later ones are counted and dropped.
  static constexpr std::size_t events_kept_max = 64;

  async_events(executor& home, verbs::context& ctx);
  async_events(const async_events&) = delete;
  async_events& operator=(const async_events&) = delete;

  /// Events that name what is on `driver` go there, until `remove`.
  void add(completion_queue_driver& driver) { drivers_.push_back(&driver); }
  void remove(completion_queue_driver& driver) noexcept { std::erase(drivers_, &driver); }

  /// The next event, in the device's order. It has been taken to its object already.
  [[nodiscard]] auto next() noexcept { return kept_.receive(); }
  [[nodiscard]] std::uint64_t seen() const noexcept { return seen_; }
  [[nodiscard]] std::uint64_t dropped() const noexcept { return dropped_; }

  /// Takes an event to the object it names.
  void route(const verbs::async_event& event) noexcept;

 private:
  struct device_watch : fd_watch {
    explicit device_watch(async_events& e)
        : fd_watch{e.home_, e.ctx_.async_fd(), fd_events::readable, &on_ready}, events{e} {}
    async_events& events;
  };
  static void on_ready(fd_watch& watch) noexcept;
  void drain() noexcept;
  void fail_all(const request_outcome& why) noexcept;

  executor& home_;
  verbs::context& ctx_;
  std::vector<completion_queue_driver*> drivers_;
  channel<verbs::async_event> kept_{events_kept_max};
  std::uint64_t seen_ = 0;
  std::uint64_t dropped_ = 0;
  device_watch watch_;  // Last: it may fire as soon as it is there.
};

}  // namespace cordma
