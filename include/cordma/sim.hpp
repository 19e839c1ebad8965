#pragma once

#include <cordma/coro/task.hpp>
#include <cordma/detail/base/callback.hpp>
#include <cordma/detail/base/export.hpp>
#include <cordma/runtime/runtime.hpp>

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>

namespace cordma::sim {

namespace detail {
class host_state;
class world_state;
}  // namespace detail

/// Delays and losses of the messages between hosts. Chances are from 0 to 1.
struct faults {
  /// Time that a frame or a socket's bytes take, at least and at most.
  time_span latency_min = std::chrono::microseconds{1};
  time_span latency_max = std::chrono::microseconds{5};
  /// Chance that a frame's link stands still, up to `clog_max`.
  double clog = 0;
  time_span clog_max = std::chrono::milliseconds{10};
  /// Chance that a frame of an unreliable queue pair is lost.
  double loss = 0;

  /// Chance that a call on a socket takes, or gives, only some of the bytes.
  double short_calls = 0;

  /// Short delays, and nothing else.
  static faults none() noexcept { return {}; }
  /// Long and short delays, links that stand still, and datagrams that are lost.
  static faults harsh() noexcept {
    return {.latency_max = std::chrono::milliseconds{2},
            .clog = 0.01,
            .loss = 0.05,
            .short_calls = 0.2};
  }
};

/// A program that failed, or that waits for what cannot come. The text names
/// the host, the seed, and the last events.
class CORDMA_EXPORT finding : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A host of a world, with one process. The world has it. \thread the world's.
class CORDMA_EXPORT host {
 public:
  host(host&&) = delete;

  [[nodiscard]] const std::string& name() const noexcept;
  /// Returns the host's address, with a port.
  [[nodiscard]] cordma::endpoint endpoint(std::uint16_t port) const;
  /// Starts the host's program on a runtime of its own, when the world runs. A host runs one
  /// program at a time. Clock, reactor and device of the options are the world's.
  void start(callback<task<>(runtime&)> program, const callback<runtime_options()>& options = {});
  /// The process dies without a word: its peers hear nothing more of it. It can be started again.
  void kill();
  /// Returns true from `start` until the program ends, or is killed.
  [[nodiscard]] bool is_running() const noexcept;

 private:
  friend class world;
  friend class detail::host_state;
  explicit host(detail::host_state& state) noexcept;
  detail::host_state& state_;
};

/// Hosts, their network and their clock in one thread, all decided by a seed: the same seed gives
/// the same run (docs/simulation.md). One world at a time in a process.
/// \thread the one that made it.
class CORDMA_EXPORT world {
 public:
  explicit world(std::uint64_t seed, const faults& wanted = faults::none());
  world(world&&) = delete;
  /// Ends all programs where they are.
  ~world();

  host& add_host(std::string_view name);
  /// Calls `f` at a time from now, between two steps of hosts.
  void after(time_span span, callback<void()> f);
  /// Keeps all messages between the two back, until `heal`.
  void partition(host& one, host& other);
  void heal();

  /// Runs all programs to their ends.
  /// \errors `finding`
  void run();

  [[nodiscard]] time_point now() const noexcept;
  /// Returns a number that depends on all that happened, in its order.
  [[nodiscard]] std::uint64_t trace_hash() const noexcept;
  /// Returns how many events there were.
  [[nodiscard]] std::uint64_t events() const noexcept;

 private:
  std::unique_ptr<detail::world_state> state_;
};

}  // namespace cordma::sim
