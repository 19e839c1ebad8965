#pragma once

#include <cordma/coro/channel.hpp>
#include <cordma/detail/io/fd_watch.hpp>
#include <cordma/detail/queue/send_operation.hpp>
#include <cordma/io/executor.hpp>
#include <cordma/verbs/device.hpp>

#include "io/logger.hpp"

#include <vector>

namespace cordma {

class completion_queue_driver;
class shared_receives;

/// Reads a device's asynchronous events (ibv_get_async_event(3)) and delivers each to the object
/// that it names. An overrun completion queue fails every queue pair on it, a broken queue pair
/// fails, and a fatal device fails all. The program gets the same events.
/// \thread the executor's. \cost nothing until the device reports something.
class async_events : private fd_watch {
 public:
  /// Events kept for `next`; when nobody takes them, later ones are counted and dropped.
  static constexpr std::size_t events_kept_max = 64;

  async_events(cordma::executor& executor, verbs::context& ctx,
               const detail::logger* log = nullptr);
  async_events(async_events&&) = delete;

  /// Delivers events that name an object on `driver` to it, until `remove`.
  void add(completion_queue_driver& driver) { drivers_.push_back(&driver); }
  void remove(completion_queue_driver& driver) noexcept { std::erase(drivers_, &driver); }

  /// Delivers the limit events of a pool, which lives as long.
  void add(shared_receives& pool) { pools_.push_back(&pool); }

  /// Gives the next event, in the device's order, after its delivery to its object.
  [[nodiscard]] auto next() noexcept { return kept_.receive(); }
  [[nodiscard]] std::uint64_t seen() const noexcept { return seen_; }
  [[nodiscard]] std::uint64_t dropped() const noexcept { return dropped_; }

  /// Delivers an event to the object that it names.
  void route(const verbs::async_event& event) noexcept;

 private:
  static void on_ready(fd_watch& watch) noexcept;
  void drain() noexcept;
  void fail_all(const request_outcome& why) noexcept;
  void log(event_log::kind event, const request_outcome& why, int port = 0) const noexcept;

  verbs::context& ctx_;
  const detail::logger* const log_;
  std::vector<completion_queue_driver*> drivers_;
  std::vector<shared_receives*> pools_;
  channel<verbs::async_event> kept_{events_kept_max};
  std::uint64_t seen_ = 0;
  std::uint64_t dropped_ = 0;
};

}  // namespace cordma
