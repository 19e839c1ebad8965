#include "world_state.hpp"

#include <algorithm>
#include <array>
#include <cinttypes>
#include <cstdio>
#include <utility>

namespace cordma::sim::detail {
namespace {

/// Each kind of decision has numbers of its own.
enum : std::uint64_t { of_schedule = 1, of_network, of_faults, of_names };
constexpr std::size_t last_events_max = 40;
/// A world that goes on for so long will not end.
constexpr std::chrono::hours time_max{24};

}  // namespace

world_state::world_state(std::uint64_t seed, const faults& wanted)
    : seed_{seed},
      wanted_{wanted},
      schedule_{seed, of_schedule},
      network_chance_{seed, of_network},
      chance_{seed, of_faults},
      names_{seed, of_names} {
  softverbs_simulate_time(&clock_.nanoseconds);
}

world_state::~world_state() {
  for (const auto& host : hosts_) host->kill();
  hosts_.clear();
  softverbs_simulate_time(nullptr);
}

host_state& world_state::add_host(std::string name) {
  const auto number = unsigned(hosts_.size()) + 1;
  return *hosts_.emplace_back(std::make_unique<host_state>(*this, std::move(name), number));
}

host_state* world_state::host_of(const softverbs_host* device) const noexcept {
  const auto found =
      std::ranges::find_if(hosts_, [&](const auto& host) { return host->device() == device; });
  return found == hosts_.end() ? nullptr : found->get();
}

host_state* world_state::host_named(std::string_view name) const noexcept {
  const auto found =
      std::ranges::find_if(hosts_, [&](const auto& host) { return host->name() == name; });
  return found == hosts_.end() ? nullptr : found->get();
}

host_state* world_state::host_at(unsigned number) const noexcept {
  return number == 0 || number > hosts_.size() ? nullptr : hosts_[number - 1].get();
}

duration world_state::latency() noexcept {
  const duration least = wanted_.latency_min;
  const duration most = std::max<duration>(wanted_.latency_max, least);
  duration taken = least + duration{network_chance_.up_to(std::uint64_t((most - least).count()))};
  if (chance_.happens(wanted_.clog))
    taken += duration{chance_.up_to(std::uint64_t(duration{wanted_.clog_max}.count()))};
  return taken;
}

void world_state::schedule(event e) {
  e.order = schedule_.next();
  queue_.push(std::move(e));
}

void world_state::note(const char* what, const host_state& host, std::uint64_t a, std::uint64_t b,
                       std::uint64_t c, std::uint64_t d) {
  for (const std::uint64_t word :
       {std::uint64_t(clock_.nanoseconds), std::uint64_t{host.number()}, a, b, c, d})
    hash_ = (hash_ ^ word) * 0x100000001b3;
  std::array<char, 160> line;
  std::snprintf(line.data(), line.size(),
                "%12.6f ms  %-8s %-8s %" PRIx64 " %" PRIx64 " %" PRIu64 " %" PRIu64,
                double(clock_.nanoseconds) / 1e6, host.name().c_str(), what, a, b, c, d);
  last_.emplace_back(line.data());
  if (last_.size() > last_events_max) last_.pop_front();
}

bool world_state::is_anybody_running() const noexcept {
  return std::ranges::any_of(hosts_, [](const auto& host) { return host->is_running(); });
}

void world_state::report(const std::string& what) const {
  std::string text = what + "\nseed " + std::to_string(seed_) + "; the last events:\n";
  for (const std::string& line : last_) text += line + '\n';
  throw finding{text};
}

void world_state::fail(const host_state& host, const std::exception_ptr& why) {
  if (!failed_.empty()) return;
  failed_ = "the program of host " + host.name() + " failed: ";
  try {
    std::rethrow_exception(why);
  } catch (const std::exception& e) {
    failed_ += e.what();
  } catch (...) {
    failed_ += "it threw something";
  }
}

void world_state::run() {
  const time_point until = now() + time_max;
  while (is_anybody_running()) {
    if (queue_.empty() || now() > until) {
      std::string waiting;
      for (const auto& host : hosts_)
        if (host->is_running()) waiting += (waiting.empty() ? "" : ", ") + host->name();
      report((queue_.empty() ? "nothing can happen any more, and these hosts wait: "
                             : "these hosts have not ended within a day: ") +
             waiting);
    }
    const event e = queue_.pop();
    clock_.nanoseconds = std::max(clock_.nanoseconds, e.at.time_since_epoch().count());
    ++events_;
    happen(e);
    if (!failed_.empty()) report(std::exchange(failed_, {}));
  }
}

void world_state::happen(const event& e) {
  if (e.kind == event_kind::call) return e.call();
  if (e.host->incarnation() != e.incarnation) return;
  switch (e.kind) {
    case event_kind::program_step: e.host->step_program(); break;
    case event_kind::device_step: e.host->step_device(); break;
    case event_kind::arrival: network_.arrive(e.end, false); break;
    case event_kind::loss: network_.arrive(e.end, true); break;
    case event_kind::link_end:
      network_.end_link(e.end);
      e.host->take_news();
      break;
    case event_kind::call: break;
  }
}

}  // namespace cordma::sim::detail
