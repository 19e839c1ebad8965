#include <cordma/sim.hpp>

#include "world_state.hpp"

#include <utility>

namespace cordma::sim {

faults faults::harsh() noexcept {
  return {.latency_max = std::chrono::milliseconds{2},
          .clog = 0.01,
          .pause = 0.001,
          .short_calls = 0.2,
          .loss = 0.05,
          .reordered = 0.02,
          .doubled = 0.02,
          .address_changes = 0.001,
          .is_swarm = true};
}

faults faults::hostile() noexcept {
  faults all = harsh();
  all.outage = 0.0002;
  all.port_down = 0.0002;
  all.refused_verbs = 0.002;
  all.failed_sockets = 0.01;
  return all;
}

faults faults::scarce() noexcept {
  faults all = hostile();
  all.failed_allocations = 0.002;
  return all;
}

host::host(detail::host_state& state) noexcept : state_{state} {}
const std::string& host::name() const noexcept { return state_.name(); }
cordma::endpoint host::endpoint(std::uint16_t port) const {
  return state_.address(port).to_string();
}
void host::start(callback<task<>(runtime&)> program, const callback<runtime_options()>& options) {
  state_.start(std::move(program), options);
}
void host::kill() { state_.kill(); }
void host::lose_power() { state_.lose_power(); }
void host::freeze() { state_.freeze(); }
void host::thaw() { state_.thaw(); }
void host::fail_device() { state_.fail_device(); }
void host::set_port(bool is_up) { state_.set_port(is_up); }
bool host::is_running() const noexcept { return state_.is_running(); }

world::world(std::uint64_t seed, const faults& wanted)
    : state_{std::make_unique<detail::world_state>(seed, wanted)} {}
world::world(std::unique_ptr<detail::world_state> state) noexcept : state_{std::move(state)} {}
world::~world() = default;

host& world::add_host(std::string_view name) { return state_->add_host(std::string{name}).face(); }
void world::after(time_span span, callback<void()> f) {
  state_->call_at(cordma::detail::after(now(), span), std::move(f));
}
void world::partition(host& one, host& other) {
  cut(one, other);
  cut(other, one);
}
void world::cut(host& from, host& to) { state_->network().cut(from.state_, to.state_); }
void world::heal() { state_->heal(); }
void world::run(time_span limit) { state_->run(limit); }
std::uint64_t world::random(std::uint64_t last) noexcept { return state_->workload().up_to(last); }
void world::fail(const std::string& what) const {
  state_->find(what);
  state_->report(what);
}
void world::forbid_receiver_not_ready() noexcept { state_->forbid_receiver_not_ready(); }
std::uint64_t world::seed() const noexcept { return state_->seed(); }
time_point world::now() const noexcept { return state_->now(); }
std::uint64_t world::trace_hash() const noexcept { return state_->trace().hash(); }
std::uint64_t world::events() const noexcept { return state_->events(); }

}  // namespace cordma::sim
