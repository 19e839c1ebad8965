#pragma once

#include "event_queue.hpp"
#include "generator.hpp"
#include "host_state.hpp"
#include "network.hpp"

#include <cordma/coro/scheduler.hpp>
#include <cordma/sim.hpp>

#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace cordma::sim::detail {

/// Time, order and chance of all hosts.
class world_state {
 public:
  world_state(std::uint64_t seed, const faults& wanted);
  ~world_state();
  world_state(const world_state&) = delete;

  host_state& add_host(std::string name);
  void run();
  void schedule(event e);
  /// A host's program has failed.
  void fail(const host_state& host, const std::exception_ptr& why);

  [[nodiscard]] time_point now() const noexcept { return clock_.now(); }
  [[nodiscard]] const time_source& clock() const noexcept { return clock_; }
  [[nodiscard]] detail::network& network() noexcept { return network_; }
  [[nodiscard]] host_state* host_of(const softverbs_host* device) const noexcept;
  [[nodiscard]] host_state* host_named(std::string_view name) const noexcept;
  /// Lets time pass in the middle of a step.
  void pass(duration by) noexcept { clock_.nanoseconds += by.count(); }
  /// Returns the host of that number; null: there is none.
  [[nodiscard]] host_state* host_at(unsigned number) const noexcept;

  // Chance.
  [[nodiscard]] generator& names() noexcept { return names_; }
  [[nodiscard]] duration latency() noexcept;
  [[nodiscard]] bool loses() noexcept { return chance_.happens(wanted_.loss); }
  /// Returns how long a step takes.
  [[nodiscard]] duration step_time() noexcept { return duration{schedule_.up_to(2000)}; }
  /// Returns how many of some bytes a call on a socket takes: mostly all, and one at least.
  [[nodiscard]] std::size_t some_of(std::size_t bytes) noexcept {
    return chance_.happens(wanted_.short_calls) ? 1 + chance_.up_to(bytes - 1) : bytes;
  }
  [[nodiscard]] std::size_t schedule_choice(std::size_t count) noexcept {
    return schedule_.up_to(count - 1);
  }

  /// Notes what happened, for the hash and for a finding's text.
  void note(const char* what, const host_state& host, std::uint64_t a = 0, std::uint64_t b = 0,
            std::uint64_t c = 0, std::uint64_t d = 0);
  [[nodiscard]] std::uint64_t hash() const noexcept { return hash_; }
  [[nodiscard]] std::uint64_t events() const noexcept { return events_; }

 private:
  class world_clock final : public time_source {
   public:
    [[nodiscard]] time_point now() const noexcept override {
      return time_point{duration{nanoseconds}};
    }
    std::int64_t nanoseconds = 1'000'000'000;  // Some deadlines lie before the time of making.
  };
  void happen(const event& e);
  [[noreturn]] void report(const std::string& what) const;
  [[nodiscard]] bool is_anybody_running() const noexcept;

  const std::uint64_t seed_;
  const faults wanted_;
  world_clock clock_;
  generator schedule_, network_chance_, chance_, names_;
  event_queue queue_;
  detail::network network_{*this};
  std::vector<std::unique_ptr<host_state>> hosts_;
  std::deque<std::string> last_;
  std::string failed_;
  std::uint64_t hash_ = 0xcbf29ce484222325;
  std::uint64_t events_ = 0;
};

}  // namespace cordma::sim::detail
