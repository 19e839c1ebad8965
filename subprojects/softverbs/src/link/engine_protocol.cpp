#include "link/engine_protocol.hpp"

#include <algorithm>
#include <mutex>

namespace softverbs {

namespace {

/// How often a running engine takes the events of its sockets and services.
constexpr std::chrono::microseconds events_period{500};
/// How long the engine polls after its last work before it sleeps. A sleep and a wake take as long,
/// and in a stream of frames the next frame comes sooner.
constexpr std::chrono::microseconds linger_time{50};
constexpr std::chrono::milliseconds crowded_time{100};
constexpr std::chrono::nanoseconds for_ever{-1};

}  // namespace

// ---- pollers

void engine_protocol::on_empty_poll(std::atomic<std::uint32_t>& empty_polls,
                                    bool has_work) noexcept {
  if (polled_.load()) {
    if (!polls_seen_.load()) polls_seen_.store(true);
  } else if (has_work) {
    const std::uint32_t polls = empty_polls.load(std::memory_order_relaxed) + 1;
    if (polls < busy_polls)
      empty_polls.store(polls, std::memory_order_relaxed);
    else
      take_over();
  }
}

void engine_protocol::after_empty_poll(std::atomic<std::uint32_t>& empty_polls,
                                       bool did_work) noexcept {
  if (!polled_.load()) return;
  const std::uint32_t polls = did_work ? 0 : empty_polls.load(std::memory_order_relaxed) + 1;
  empty_polls.store(polls, std::memory_order_relaxed);
  if (polls % polls_per_yield == polls_per_yield - 1) world_.yield();
}

void engine_protocol::on_arm(std::atomic<std::uint32_t>& empty_polls) noexcept {
  empty_polls.store(0, std::memory_order_relaxed);
  give_back(true);
  world_.work(false);
}

void engine_protocol::take_over() noexcept {
  const std::lock_guard lock{duty_};
  if (polled_.load()) return;
  polls_seen_.store(true);
  polled_.store(true);
  asleep_.store(false);
  world_.want_doorbells(false);
  // An engine that is not watching may sleep for ever: it must learn that a poller took over.
  if (!watching_.load()) world_.wake_engine();
}

void engine_protocol::give_back(bool engine_sleeps) noexcept {
  if (!polled_.load()) return;
  const std::lock_guard lock{duty_};
  if (!polled_.load()) return;
  polled_.store(false);
  world_.want_doorbells(true);
  asleep_.store(engine_sleeps);
}

// ---- the engine

void engine_protocol::start() noexcept {
  stopping_.store(false);
  polled_.store(false);
}

void engine_protocol::start_simulated() noexcept {
  start();
  asleep_.store(true);
}

void engine_protocol::stop() noexcept {
  stopping_.store(true);
  world_.wake_engine();
}

void engine_protocol::run() noexcept {
  clock::time_point linger_until{};
  clock::time_point lingers_from{};
  clock::time_point events_due{};
  while (!stopping()) {
    if (polled_.load()) {
      watch_pollers();
      continue;
    }
    watch_period_ = watch_period_first;
    const bool did = world_.work(true);
    const clock::time_point now = world_.now();
    if (now >= events_due) {
      world_.wait({});
      events_due = now + events_period;
    }
    if (did) {
      linger_until = {};
    } else if (linger_until == clock::time_point{}) {
      linger_until = now < lingers_from ? now : now + linger_time;
    } else if (now >= linger_until) {
      sleep();
    } else {
      world_.yield();
      // The yield took long: other threads want this processor. A sleeping engine is scheduled
      // sooner than one that yields.
      if (const auto back = world_.now(); back - now > linger_time)
        lingers_from = back + crowded_time;
    }
  }
}

/// In state `polled`, the engine serves sockets and listeners only, and checks that polls go on.
void engine_protocol::watch_pollers() noexcept {
  watching_.store(true);
  if (const clock::time_point now = world_.now(); now >= watch_until_) {
    if (!polls_seen_.exchange(false)) {
      watching_.store(false);
      give_back(false);
      return;
    }
    watch_until_ = now + watch_period_;
    watch_period_ = std::min<std::chrono::nanoseconds>(2 * watch_period_, watch_period_max);
  }
  world_.wait(watch_period_);
  watching_.store(false);
}

void engine_protocol::sleep() noexcept {
  {
    const std::lock_guard lock{duty_};
    if (polled_.load()) return;
    world_.want_doorbells(true);
    asleep_.store(true);
  }
  // Work may have come before the doorbells were on, or been left before `asleep_` was stored.
  if (!world_.work(true) && !stopping()) world_.wait(for_ever);
  asleep_.store(false);
}

}  // namespace softverbs
