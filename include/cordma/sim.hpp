#pragma once

#include <cordma/coro/task.hpp>
#include <cordma/detail/base/callback.hpp>
#include <cordma/detail/base/export.hpp>
#include <cordma/runtime/runtime.hpp>

#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>

/// Simulation of hosts, their network and their clock in one thread, for tests of programs that use
/// cordma (docs/simulation.md). Link with cordma-sim.
namespace cordma::sim {

namespace detail {
class host_state;
class seed_run;
class world_state;
}  // namespace detail

/// Faults of messages and of hosts' calls, by chance. Chances are from 0 to 1.
struct faults {
  // The programs see these as slowness only.

  /// Time that a frame or a socket's bytes take, at least and at most.
  time_span latency_min = std::chrono::microseconds{1};
  time_span latency_max = std::chrono::microseconds{5};
  /// Chance that a frame stands still, up to `clog_max`, and all behind it on its link.
  double clog = 0;
  time_span clog_max = std::chrono::milliseconds{10};
  /// Chance that an iteration of a host's executor begins up to `pause_max` later.
  double pause = 0;
  time_span pause_max = std::chrono::milliseconds{20};
  /// Chance that a call on a socket takes, or gives, only some of the bytes.
  double short_calls = 0;
  /// Chance that a frame of a datagram is lost, comes later than those behind it, or comes twice.
  double loss = 0;
  double reordered = 0;
  double doubled = 0;
  /// Chance that a host gets, or loses, a second address before a step of its program.
  double address_changes = 0;

  // The programs see these as errors, and a scenario must say that it copes with them.

  /// Chance that a frame stands still for up to `outage_max`: longer than a requester tries. The
  /// request may have been executed, and only its answer be late.
  double outage = 0;
  time_span outage_max = std::chrono::seconds{30};
  /// Chance that a host's port goes down before a step of its program, for up to `port_down_max`.
  double port_down = 0;
  time_span port_down_max = std::chrono::seconds{1};
  /// Chance that a verb that makes something fails with ENOMEM.
  double refused_verbs = 0;
  /// Chance that the making of a socket fails with EMFILE, or a call on one with ECONNRESET.
  double failed_sockets = 0;
  /// Chance, at each step of a host's program, that one of the next 32 allocations by operator new
  /// of the program and the library fails. With a sanitizer of clang none fails.
  double failed_allocations = 0;

  /// If true, the seed decides which of these happen at all in a world.
  bool is_swarm = false;

  bool operator==(const faults&) const = default;

  /// Short delays, and nothing else.
  static faults none() noexcept { return {}; }
  /// All that the programs see as slowness, and lost datagrams.
  static faults harsh() noexcept;
  /// Every fault there is but failed allocations.
  static faults hostile() noexcept;
  /// Every fault there is.
  static faults scarce() noexcept;
};

/// Thrown for what must not happen: a program that failed, that waits for what cannot come, or that
/// left something open. The text names the host, the seed, and the last events of each host.
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
  /// program at a time. Clock, reactor and device of the options are the world's. Allocators for
  /// which the options have no limit register at most 1 GiB.
  /// \errors those of a runtime's constructor, which is called at once
  void start(callback<task<>(runtime&)> program, const callback<runtime_options()>& options = {});
  /// The process dies: its kernel ends its connections, and the peers hear of that. The host can be
  /// started again.
  void kill();
  /// The machine loses its power: the peers hear nothing more. The host can be started again.
  void lose_power();
  /// The process is stopped, and its device goes on, until `thaw`.
  void freeze();
  void thaw();
  /// The program's device reports IBV_EVENT_DEVICE_FATAL, and does nothing more: requests are
  /// flushed, verbs that make something fail with EIO, and peers get no answers. The host's next
  /// program has another one. Without a program, nothing happens.
  void fail_device();
  /// The host's port goes down (IBV_EVENT_PORT_ERR), or up again: until then nothing comes or goes.
  void set_port(bool is_up);
  /// Returns true from `start` until the program ends, or is killed.
  [[nodiscard]] bool is_running() const noexcept;

 private:
  friend class world;
  friend class detail::host_state;
  explicit host(detail::host_state& state) noexcept;
  detail::host_state& state_;
};

/// Hosts, their network and their clock in one thread, all decided by a seed: the same seed gives
/// the same run. One world at a time in a process. \thread the one that made it.
class CORDMA_EXPORT world {
 public:
  explicit world(std::uint64_t seed, const faults& wanted = faults::none());
  world(world&&) = delete;
  /// Ends all programs where they are.
  ~world();

  /// \errors `finding`: there is a host of that name.
  host& add_host(std::string_view name);
  /// Calls `f` at a time from now, between two steps of hosts.
  void after(time_span span, callback<void()> f);
  /// Keeps all messages between the two back, until `heal`.
  void partition(host& one, host& other);
  /// Keeps all messages in one direction back, until `heal`.
  void cut(host& from, host& to);
  /// Ends what keeps messages back, and no fault happens by chance from now on.
  void heal();

  /// Runs all programs to their ends.
  /// \errors `finding`, also when they have not ended within `limit` of the world's time.
  void run(time_span limit = std::chrono::hours{24});

  /// Returns a number from 0 to `last`, for what the programs do.
  std::uint64_t random(std::uint64_t last) noexcept;
  /// Reports what must not be, also if the program takes the exception for a failure of its own and
  /// goes on. \errors always `finding`, with the seed and the last events.
  [[noreturn]] void fail(const std::string& what) const;
  /// From now on it is a finding that a message meets no receive.
  void forbid_receiver_not_ready() noexcept;

  [[nodiscard]] std::uint64_t seed() const noexcept;
  [[nodiscard]] time_point now() const noexcept;
  /// Returns a number that depends on all that happened, in its order.
  [[nodiscard]] std::uint64_t trace_hash() const noexcept;
  /// Returns how many events there were.
  [[nodiscard]] std::uint64_t events() const noexcept;

 private:
  friend class detail::seed_run;
  explicit world(std::unique_ptr<detail::world_state> state) noexcept;
  std::unique_ptr<detail::world_state> state_;
};

/// Programs of several hosts, and what must hold for them.
struct scenario {
  const char* name;
  const char* what;  ///< In a line of help.
  /// Adds hosts to a new world, starts them, runs the world, and checks what they did.
  /// \errors anything that it throws is a finding.
  void (*play)(world& w);
  /// True: the programs cope with errors, and `faults::hostile` can be tried on them.
  bool is_robust = false;
  /// True: they cope with std::bad_alloc as well, whatever throws it, and `faults::scarce` can be
  /// tried on them.
  bool survives_bad_alloc = false;
};

/// Runs scenarios over many seeds, as a command line says (`--help` lists the options). Prints
/// seeds a second, and for a finding its seed, the shortest plan that shows it, and the last
/// events. Returns the exit status: 0, 1 for a finding, 2 for a wrong command line.
CORDMA_EXPORT int run_scenarios(int argc, const char* const* argv, std::span<const scenario> all);

}  // namespace cordma::sim
