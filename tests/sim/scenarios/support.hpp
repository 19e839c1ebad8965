#pragma once

#include "../open_network.hpp"

#include <cordma/cordma.hpp>
#include <cordma/sim.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace cordma::test {

inline constexpr std::size_t kib = 1024;

/// All messages are parts of the pattern, so that a wrong byte is found.
inline constexpr std::size_t pattern_bytes = 512 * kib;
std::span<const std::byte> pattern();
inline std::span<const std::byte> pattern(std::size_t offset, std::size_t length) {
  return pattern().subspan(offset, length);
}
inline bool is_pattern(std::span<const std::byte> bytes, std::size_t offset) {
  return offset + bytes.size() <= pattern_bytes &&
         std::memcmp(bytes.data(), pattern().data() + offset, bytes.size()) == 0;
}
/// Registers the pattern.
const_local_mr registered_pattern(mr_allocator& memory);

/// Returns the allocator of memory that peers may read, write and use for atomics.
mr_allocator& reachable_memory(runtime& rt);

/// A part of the pattern.
struct part {
  std::size_t offset = 0;
  std::size_t length = 0;

  [[nodiscard]] std::span<const std::byte> bytes() const { return pattern(offset, length); }
  [[nodiscard]] const_local_mr_slice of(const const_local_mr& registered) const {
    return registered.slice(offset, length);
  }
  [[nodiscard]] bool is_in(std::span<const std::byte> seen) const {
    return seen.size() == length && is_pattern(seen, offset);
  }
};

/// Returns a part of 1 to `length_max` bytes, of which short ones are as likely as long ones.
part any_part(sim::world& w, std::size_t length_max);
/// Returns a part that has at most 4 KiB nine times of ten, else mostly 8, and at most 256 KiB.
part usual_part(sim::world& w);

/// Things that the programs of a scenario share beside the network. The programs hold them, because
/// they may outlive `play`.
struct cast {
  cast(sim::world& of, unsigned count);
  cast(const cast&) = delete;

  [[nodiscard]] endpoint at(unsigned host) const { return hosts[host]->endpoint(sim_port); }
  [[nodiscard]] unsigned size() const { return unsigned(hosts.size()); }
  /// Returns true while a program of a host from `first` on runs, or will.
  [[nodiscard]] bool are_running_from(unsigned first) const;
  void require(bool holds, const char* what) const {
    if (!holds) w.fail(what);
  }
  /// Closes a conversation that is over. A close that waits in vain takes its limit of 2 s.
  template <class Conversation>
  task<> close(Conversation& over) const {
    const time_point began = w.now();
    co_await over.close();
    require(w.now() - began < std::chrono::seconds{1}, "a close waited in vain");
  }
  /// A time up to `most`, at random.
  [[nodiscard]] duration moment(duration most) const {
    return duration{w.random(std::uint64_t(most.count()))};
  }

  sim::world& w;
  std::vector<sim::host*> hosts;
  unsigned to_be_started = 0;  ///< programs of killed hosts
  std::vector<bool> is_down;   ///< Hosts that `keep_running` leaves alone.
};

/// The program of a host: `play->live(rt, number)`, and again if there was no memory for it.
template <std::derived_from<cast> Play>
task<> live(std::shared_ptr<Play> play, runtime& rt, unsigned number) {
  for (;;) {
    try {
      co_await play->live(rt, number);
      co_return;
    } catch (const std::bad_alloc&) {
      // The next attempt may have it.
    }
    co_await sleep_for(std::chrono::milliseconds{1});
  }
}

/// Starts the program of a host: again, if there is no device for it.
template <std::derived_from<cast> Play>
void start(const std::shared_ptr<Play>& play, unsigned number) {
  const auto program = [play, number](runtime& rt) { return live(play, rt, number); };
  try {
    play->hosts[number]->start(program, open_network);
  } catch (const error&) {
    ++play->to_be_started;
    play->w.after(std::chrono::milliseconds{1}, [play, number] {
      --play->to_be_started;
      // A restart may have come first.
      if (!play->hosts[number]->is_running()) start(play, number);
    });
  }
}

/// Makes what the programs share, and starts a program on each of `count` hosts.
template <std::derived_from<cast> Play>
std::shared_ptr<Play> start_all(sim::world& w, unsigned count) {
  auto play = std::make_shared<Play>(w, count);
  for (unsigned n = 0; n < count; ++n) start(play, n);
  return play;
}

/// Ends the process of a host after `when`, and starts another one `pause` later.
template <std::derived_from<cast> Play>
void restart(const std::shared_ptr<Play>& play, unsigned number, duration when, duration pause) {
  play->w.after(when, [play, number, pause] {
    ++play->to_be_started;
    play->hosts[number]->kill();
    play->w.after(pause, [play, number] {
      --play->to_be_started;
      if (!play->hosts[number]->is_running()) start(play, number);
    });
  });
}

/// Connects, and tries again while nobody listens there.
task<connection> connect_patiently(runtime& rt, endpoint to, const connection_changes& with = {});

/// Returns changes after which no heartbeat wakes a host that has missed a completion.
inline connection_changes without_heartbeats() {
  connection_changes changes;
  changes.heartbeat = connection_options::heartbeat_options{.enabled = false};
  return changes;
}

/// How often a program tries again, and how long it waits before.
struct patience {
  unsigned attempts = 12;
  duration delay = std::chrono::milliseconds{1};
  duration delay_max = std::chrono::milliseconds{500};
};

/// Runs `attempt()` until it does not fail. Returns false when the last attempt has failed, too.
template <class Attempt>
task<bool> persist(Attempt attempt, patience how = {}) {
  for (unsigned n = 0; n < how.attempts; ++n) {
    bool has_failed = false;
    try {
      co_await attempt();
    } catch (const error&) {
      has_failed = true;
    } catch (const std::bad_alloc&) {
      has_failed = true;
    }
    if (!has_failed) co_return true;
    co_await sleep_for(how.delay);
    how.delay = std::min(2 * how.delay, how.delay_max);
  }
  co_return false;
}

/// Ends when `is_true()`.
template <class Condition>
task<> until(Condition is_true, time_span pause = std::chrono::milliseconds{20}) {
  while (!is_true()) co_await sleep_for(pause);
}

/// Ends how an operation ended: `code_of(co_await as_result(op))`.
template <class T>
std::error_code code_of(const result<T>& r) {
  return r.has_failure() ? r.failure().code : std::error_code{};
}

}  // namespace cordma::test
