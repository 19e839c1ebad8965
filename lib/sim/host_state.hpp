#pragma once

#include "base/random.hpp"
#include "base/spare_memory.hpp"
#include "decisions.hpp"
#include "memory_oracle.hpp"
#include "sim_reactor.hpp"
#include "sim_sockets.hpp"
#include "traps.hpp"

#include <cordma/io/executor.hpp>
#include <cordma/runtime/runtime.hpp>
#include <cordma/sim.hpp>

#include <softverbs/simulation.h>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace cordma::sim::detail {

class host_state;
class world_state;

/// Random bytes of a seed, in place of the kernel's.
class seeded_bytes final : public cordma::detail::random_source {
 public:
  explicit seeded_bytes(std::uint64_t seed) noexcept : numbers_{seed, 0} {}
  void fill(std::span<std::byte> out) override;

 private:
  generator numbers_;
};

/// Makes a block run as a host's process: verbs calls and random bytes are the host's.
class host_scope {
 public:
  explicit host_scope(host_state& host) noexcept;
  host_scope(const host_scope&) = delete;
  ~host_scope() { softverbs_enter_host(before_); }

 private:
  softverbs_host* const before_;
  const cordma::detail::random_scope random_;
  const cordma::detail::spare_memory_scope memory_;
  const trap_scope trap_;
};

/// The answers of a simulated host to its programs' runtimes.
class answers final : public cordma::detail::host_calls {
 public:
  explicit answers(host_state& host) noexcept : host_{host} {}
  [[nodiscard]] cordma::detail::socket_calls& sockets() noexcept override;
  /// Knows the hosts by name, and numeric addresses.
  std::vector<socket_address> resolve(const std::string& host, std::uint16_t port) override;
  std::vector<socket_address> own_addresses() override;
  socket_address address_toward(const socket_address& to) override;
  std::string boot_id() override;
  [[nodiscard]] bool has_threads() const noexcept override { return false; }
  [[nodiscard]] cordma::detail::lease_witness* leases() noexcept override { return &leases_; }
  void pause() noexcept override;

 private:
  host_state& host_;
  host_leases leases_{host_};
};

/// A host and its process.
///
/// States:
///   idle     no process. At first, after the program's end, after `kill` and `lose_power`.
///   running  by `start`, from the first step on; by `thaw`.
///   frozen   by `freeze`: the device goes on, and the program does not.
class host_state {
 public:
  host_state(world_state& w, std::string name, unsigned number);
  host_state(const host_state&) = delete;
  ~host_state();

  void start(callback<task<>(runtime&)> program, const callback<runtime_options()>& options);
  /// One iteration of the executor.
  void step_program();
  /// One piece of the device's work.
  void step_device();
  void kill();
  void lose_power();
  /// Ends the process at the end of the world: whatever happens now is no finding.
  void leave() noexcept;
  void freeze() noexcept { is_frozen_ = true; }
  void thaw() noexcept;
  void fail_device();
  void set_port(bool is_up);
  /// No allocation fails that was about to.
  void heal() noexcept { allocations_left_ = 0; }
  /// In the middle of a step: lets a moment pass, and the device work.
  void pass_time() noexcept;

  /// The process calls a verb. Returns the errno with which the verb fails; 0: none.
  int on_verb(std::string_view verb, ibv_context* on);

  /// Steps the program soon, if something has come for it.
  void take_news() noexcept;
  void wake() noexcept;
  /// Steps the device soon.
  void device_has_work() noexcept;

  /// Returns a number that grows whenever a descriptor may have become ready.
  [[nodiscard]] sim_sockets& sockets() noexcept { return sockets_; }
  [[nodiscard]] world_state& world() const noexcept { return world_; }
  [[nodiscard]] cordma::detail::host_calls& calls() noexcept { return calls_; }
  [[nodiscard]] std::uint64_t activity() const noexcept { return activity_; }
  /// A descriptor may be ready that was not.
  void something_came() noexcept {
    ++activity_;
    take_news();
  }
  [[nodiscard]] bool is_running() const noexcept { return process_ != nullptr; }
  /// Returns false from `lose_power` until `start`: the host answers nobody.
  [[nodiscard]] bool has_power() const noexcept { return has_power_; }
  [[nodiscard]] bool is_waiting() const noexcept { return is_running() && !is_step_due_; }
  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  [[nodiscard]] unsigned number() const noexcept { return number_; }
  [[nodiscard]] std::uint64_t incarnation() const noexcept { return incarnation_; }
  [[nodiscard]] softverbs_host* device() const noexcept { return device_; }
  [[nodiscard]] ibv_gid gid() const noexcept;
  [[nodiscard]] socket_address address(std::uint16_t port) const noexcept;
  [[nodiscard]] time_point now() const noexcept;
  void fill_random(std::span<std::byte> out) { bytes_.fill(out); }
  [[nodiscard]] sim::host& face() noexcept { return face_; }

 private:
  struct process;
  void add_device();
  void end_process() noexcept;
  void schedule_step(time_point at) noexcept;
  [[nodiscard]] duration program_time();
  void replace_device();
  void interleave();
  void happen_to_port();
  void check_nothing_left();

  friend class host_scope;
  world_state& world_;
  seeded_bytes bytes_;
  sim_sockets sockets_{*this};
  answers calls_{*this};
  sim::host face_{*this};
  const std::string name_;
  const unsigned number_;
  std::uint64_t incarnation_ = 0;
  std::uint64_t activity_ = 0;
  std::uint64_t allocations_left_ = 0;  ///< until one fails; 0: none does
  softverbs_host* device_ = nullptr;
  bool is_step_due_ = false;
  bool is_device_due_ = false;
  bool is_frozen_ = false;
  bool has_power_ = true;
  bool has_device_failed_ = false;
  bool is_leaving_ = false;
  bool missed_step_ = false;  ///< while frozen
  bool spins_ = false;
  bool has_second_address_ = false;
  time_point step_at_{};                            ///< the due step's
  time_point timer_at_ = time_point::max();         ///< the executor's, as an event
  time_point device_timer_at_ = time_point::max();  ///< the device's, as an event
  std::unique_ptr<process> process_;
};

}  // namespace cordma::sim::detail
