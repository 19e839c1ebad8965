#include "world_state.hpp"

#include "last_words.hpp"

#include <algorithm>
#include <array>
#include <cinttypes>
#include <cstdio>
#include <initializer_list>
#include <utility>

namespace cordma::sim::detail {
namespace {

/// Kinds of numbers that are no decisions of a plan.
enum : std::uint64_t { of_names = 16, of_workload, of_swarm, of_links, of_arming };

std::array<double*, 12> chances_of(faults& all) noexcept {
  return {&all.clog,      &all.pause,           &all.short_calls,    &all.loss,
          &all.reordered, &all.doubled,         &all.outage,         &all.refused_verbs,
          &all.port_down, &all.address_changes, &all.failed_sockets, &all.failed_allocations};
}

/// Returns the part of the faults that the seed turns on.
faults turned_on(faults all, std::uint64_t seed) {
  if (!all.is_swarm) return all;
  generator coins{seed, of_swarm};
  for (double* chance : chances_of(all))
    if (coins.up_to(1) == 0) *chance = 0;
  if (coins.up_to(1) == 0) all.latency_max = all.latency_min;
  return all;
}

/// Returns how many bytes a link's direction holds: in half of the seeds the least that softverbs
/// takes, so that links get full.
std::uint32_t link_bytes_of(std::uint64_t seed) noexcept {
  constexpr std::uint32_t least = 256 * 1024, usual = 1024 * 1024;
  return generator{seed, of_links}.up_to(1) == 0 ? least : usual;
}

/// Returns an amount of a time, at most that time.
duration part_of(time_span most, std::uint64_t amount) noexcept {
  return std::min<duration>(most, duration{std::int64_t(amount)});
}

std::uint64_t nanoseconds(time_span span) noexcept {
  return std::uint64_t(std::max<std::int64_t>(duration{span}.count(), 1));
}

}  // namespace

world_state::world_state(std::uint64_t seed, const faults& wanted, const plan& kept)
    : seed_{seed},
      schedule_{seed, decision_kind::schedule, kept},
      network_chance_{seed, decision_kind::network, kept},
      faults_{seed, decision_kind::fault, kept},
      names_{seed, of_names},
      workload_{seed, of_workload},
      wanted_{turned_on(wanted, seed)},
      pace_{schedule_},
      link_bytes_{link_bytes_of(seed)},
      arms_for_later_{generator{seed, of_arming}.up_to(1) == 0} {
  if (wanted.failed_allocations > 0) fresh_frames_.emplace();
  softverbs_simulate_time(&clock_.nanoseconds);
}

world_state::~world_state() {
  for (const auto& host : hosts_) host->leave();
  hosts_.clear();
  softverbs_simulate_time(nullptr);
}

host_state& world_state::add_host(std::string name) {
  if (host_named(name) != nullptr) report("there are two hosts of the name " + name);
  const auto number = unsigned(hosts_.size()) + 1;
  trace_.add_host();
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

const decisions& world_state::decisions_of(decision_kind kind) const noexcept {
  switch (kind) {
    case decision_kind::fault: return faults_;
    case decision_kind::network: return network_chance_;
    case decision_kind::schedule: break;
  }
  return schedule_;
}

duration world_state::latency() {
  const duration least = wanted_.latency_min;
  const duration most = std::max<duration>(wanted_.latency_max, least);
  return least +
         duration{std::int64_t(network_chance_.up_to(std::uint64_t((most - least).count())))};
}

duration world_state::frame_latency() {
  duration taken = latency();
  if (const auto clog = faults_.amount(wanted_.clog, nanoseconds(wanted_.clog_max)))
    taken += part_of(wanted_.clog_max, clog);
  if (const auto outage = faults_.amount(wanted_.outage, nanoseconds(wanted_.outage_max)))
    taken += part_of(wanted_.outage_max, outage);
  return taken;
}

duration world_state::lateness() {
  const time_span most = std::chrono::milliseconds{1};
  return part_of(most, faults_.amount(wanted_.reordered, nanoseconds(most)));
}

duration world_state::pause() {
  return part_of(wanted_.pause_max, faults_.amount(wanted_.pause, nanoseconds(wanted_.pause_max)));
}

duration world_state::port_down() {
  return part_of(wanted_.port_down_max,
                 faults_.amount(wanted_.port_down, nanoseconds(wanted_.port_down_max)));
}

std::uint64_t world_state::allocations_until_one_fails() {
  constexpr std::uint64_t most = 32;
  return faults_.amount(wanted_.failed_allocations, most);
}

void world_state::heal() {
  for (double* chance : chances_of(wanted_)) *chance = 0;
  for (const auto& host : hosts_) host->heal();
  network_.heal();
}

std::size_t world_state::some_of(std::size_t bytes) {
  const std::uint64_t amount = faults_.amount(wanted_.short_calls, bytes);
  return amount == 0 ? bytes : amount;
}

void world_state::schedule(event e) {
  e.order = schedule_.up_to(UINT64_MAX);
  queue_.push(e);
}

void world_state::call_at(time_point at, callback<void()> f) {
  queue_.push({.at = at, .order = schedule_.up_to(UINT64_MAX)}, std::move(f));
}

bool world_state::is_anybody_running() const noexcept {
  return std::ranges::any_of(hosts_, [](const auto& host) { return host->is_running(); });
}

void world_state::report(const std::string& what) const {
  std::string text = what + '\n';
  append_last_events(text);
  throw finding{text};
}

template <class Text>
void world_state::append_last_events(Text& to) const {
  std::array<char, 64> line;
  std::snprintf(line.data(), line.size(), "seed %" PRIu64 "; the last events of each host:\n",
                seed_);
  to += std::string_view{line.data()};
  for (const auto& host : hosts_) {
    if (host == nullptr) continue;  // The world ends.
    to += host->name();
    to += std::string_view{":\n"};
    trace_.for_each_last(host->number(), [&](const trace_record& r) {
      std::snprintf(line.data(), line.size(), "  %14.6f ms  ",
                    double(r.at.time_since_epoch().count()) / 1e6);
      to += std::string_view{line.data()};
      r.append_to(to);
      to += std::string_view{"\n"};
    });
  }
}

template void world_state::append_last_events(std::string& to) const;
template void world_state::append_last_events(bounded_text& to) const;

void world_state::report_waiting(const std::string& what) const {
  std::string waiting;
  for (const auto& host : hosts_)
    if (host->is_running()) waiting += (waiting.empty() ? "" : ", ") + host->name();
  report(what + waiting);
}

void world_state::find(std::string what) {
  if (found_.empty()) found_ = std::move(what);
}

void world_state::fail(const host_state& host, const std::exception_ptr& why) {
  std::string what = "the program of host " + host.name() + " failed: ";
  try {
    std::rethrow_exception(why);
  } catch (const std::exception& e) {
    what += e.what();
  } catch (...) {
    what += "it threw something";
  }
  find(std::move(what));
}

void world_state::run(duration limit) {
  const time_point until = now() + limit;
  while (is_anybody_running()) {
    if (queue_.empty()) report_waiting("nothing can happen any more, and these hosts wait: ");
    const event e = queue_.pop();
    if (e.at > until) report_waiting("these hosts have not ended within the limit: ");
    clock_.nanoseconds =
        std::max<std::int64_t>(clock_.nanoseconds, e.at.time_since_epoch().count());
    ++events_;
    happen(e);
    if (!found_.empty()) report(std::exchange(found_, {}));
  }
}

void world_state::happen(const event& e) {
  if (e.kind == event_kind::call) return queue_.take_call(e)();
  if (e.host->incarnation() != e.incarnation) return;
  switch (e.kind) {
    case event_kind::program_step: e.host->step_program(); break;
    case event_kind::device_step: e.host->step_device(); break;
    case event_kind::arrival: network_.arrive(e.end); break;
    case event_kind::link_end: network_.end_link(e); break;
    case event_kind::call: break;
  }
}

}  // namespace cordma::sim::detail
