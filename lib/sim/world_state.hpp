#pragma once

#include "allocations.hpp"
#include "decisions.hpp"
#include "event_queue.hpp"
#include "host_state.hpp"
#include "memory_oracle.hpp"
#include "network.hpp"
#include "pace.hpp"
#include "request_oracle.hpp"
#include "trace.hpp"

#include <cordma/coro/scheduler.hpp>
#include <cordma/sim.hpp>

#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace cordma::sim::detail {

/// Time, order and chance of all hosts.
class world_state {
 public:
  world_state(std::uint64_t seed, const faults& wanted, const plan& kept = {});
  ~world_state();
  world_state(const world_state&) = delete;

  host_state& add_host(std::string name);
  void run(duration limit);
  void schedule(event e);
  void call_at(time_point at, callback<void()> f);
  void heal();
  /// A host's program has failed.
  void fail(const host_state& host, const std::exception_ptr& why);
  /// A step has found a fault: `run` throws it after the step.
  void find(std::string what);
  [[noreturn]] void report(const std::string& what) const;
  /// Appends the seed, and the last events of each host. Allocates nothing but what `to` does.
  template <class Text>
  void append_last_events(Text& to) const;

  [[nodiscard]] std::uint64_t seed() const noexcept { return seed_; }
  [[nodiscard]] time_point now() const noexcept { return clock_.now(); }
  [[nodiscard]] const time_source& clock() const noexcept { return clock_; }
  [[nodiscard]] detail::network& network() noexcept { return network_; }
  [[nodiscard]] memory_oracle& memory() noexcept { return memory_; }
  [[nodiscard]] request_oracle& requests() noexcept { return requests_; }
  [[nodiscard]] host_state* host_of(const softverbs_host* device) const noexcept;
  [[nodiscard]] host_state* host_named(std::string_view name) const noexcept;
  [[nodiscard]] const std::vector<std::unique_ptr<host_state>>& hosts() const noexcept {
    return hosts_;
  }
  /// Lets time pass in the middle of a step.
  void pass(duration by) noexcept { clock_.nanoseconds += by.count(); }
  /// Returns the host of that number; null: there is none.
  [[nodiscard]] host_state* host_at(unsigned number) const noexcept {
    return number == 0 || number > hosts_.size() ? nullptr : hosts_[number - 1].get();
  }

  // Chance.
  [[nodiscard]] generator& names() noexcept { return names_; }
  [[nodiscard]] generator& workload() noexcept { return workload_; }
  [[nodiscard]] duration latency();
  /// Returns the latency of a frame, which may stand still.
  [[nodiscard]] duration frame_latency();
  [[nodiscard]] bool loses() { return faults_.happens(wanted_.loss); }
  [[nodiscard]] bool doubles() { return faults_.happens(wanted_.doubled); }
  /// Returns how much later than in its turn a datagram comes.
  [[nodiscard]] duration lateness();
  /// Returns how long a step of a host's program, or its device, takes.
  [[nodiscard]] duration step_time(unsigned actor) { return pace_.step_time(actor, schedule_); }
  [[nodiscard]] duration pause();
  /// Returns how many bytes each direction of a link holds.
  [[nodiscard]] std::uint32_t link_bytes() const noexcept { return link_bytes_; }
  /// Returns whether completions that came before an arming raise no event.
  [[nodiscard]] bool arms_for_later() const noexcept { return arms_for_later_; }
  /// Returns for how long a host's port goes down.
  [[nodiscard]] duration port_down();
  /// Returns which of the next allocations of a host's program fails; 0: none.
  [[nodiscard]] std::uint64_t allocations_until_one_fails();
  [[nodiscard]] bool changes_address() { return faults_.happens(wanted_.address_changes); }
  [[nodiscard]] bool interrupts() { return faults_.happens(wanted_.short_calls / 4); }
  [[nodiscard]] bool refuses_verb() { return faults_.happens(wanted_.refused_verbs); }
  [[nodiscard]] bool breaks_socket() { return faults_.happens(wanted_.failed_sockets); }
  /// Returns how many of some bytes a call on a socket takes: mostly all, and one at least.
  [[nodiscard]] std::size_t some_of(std::size_t bytes);
  [[nodiscard]] std::size_t schedule_choice(std::size_t count) noexcept {
    return count == 1 ? 0 : schedule_.up_to(count - 1);
  }

  /// Notes what happened, for the hash and for a finding's text.
  void note(event_text what, const host_state& host, std::uint64_t a = 0, std::uint64_t b = 0,
            std::uint64_t c = 0, std::uint64_t d = 0) {
    trace_.note({now(), host.number(), what, {a, b, c, d}});
  }
  [[nodiscard]] detail::trace& trace() noexcept { return trace_; }
  [[nodiscard]] const decisions& decisions_of(decision_kind kind) const noexcept;
  [[nodiscard]] std::uint64_t events() const noexcept { return events_; }
  void forbid_receiver_not_ready() noexcept { forbids_receiver_not_ready_ = true; }
  [[nodiscard]] bool forbids_receiver_not_ready() const noexcept {
    return forbids_receiver_not_ready_;
  }

 private:
  class world_clock final : public time_source {
   public:
    [[nodiscard]] time_point now() const noexcept override {
      return time_point{duration{nanoseconds}};
    }
    std::int64_t nanoseconds = 1'000'000'000;  // Some deadlines lie before the time of making.
  };
  void happen(const event& e);
  [[nodiscard]] bool is_anybody_running() const noexcept;
  [[noreturn]] void report_waiting(const std::string& what) const;

  const std::uint64_t seed_;
  world_clock clock_;
  decisions schedule_, network_chance_, faults_;
  generator names_, workload_;
  faults wanted_;
  pace pace_;
  const std::uint32_t link_bytes_;
  const bool arms_for_later_;
  event_queue queue_;
  detail::trace trace_;
  detail::network network_{*this};
  memory_oracle memory_{*this};
  request_oracle requests_{*this, memory_};
  std::optional<fresh_frames> fresh_frames_;
  std::vector<std::unique_ptr<host_state>> hosts_;
  std::string found_;
  bool forbids_receiver_not_ready_ = false;
  std::uint64_t events_ = 0;
};

}  // namespace cordma::sim::detail
