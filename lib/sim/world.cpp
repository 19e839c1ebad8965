#include <cordma/sim.hpp>

#include "world_state.hpp"

#include <array>
#include <cstdio>
#include <utility>

namespace cordma::sim {
namespace {

std::string address_text(const ibv_gid& gid) {
  const unsigned number = unsigned{gid.raw[14]} << 8 | gid.raw[15];
  std::array<char, 16> text;
  std::snprintf(text.data(), text.size(), "fd00::%x", number);
  return text.data();
}

}  // namespace

host::host(detail::host_state& state) noexcept : state_{state} {}
const std::string& host::name() const noexcept { return state_.name(); }
cordma::endpoint host::endpoint(std::uint16_t port) const {
  return {address_text(state_.gid()), port};
}
void host::start(callback<task<>(runtime&)> program, const callback<runtime_options()>& options) {
  state_.start(std::move(program), options);
}
void host::kill() { state_.kill(); }
bool host::is_running() const noexcept { return state_.is_running(); }

world::world(std::uint64_t seed, const faults& wanted)
    : state_{std::make_unique<detail::world_state>(seed, wanted)} {}
world::~world() = default;

host& world::add_host(std::string_view name) { return state_->add_host(std::string{name}).face(); }
void world::after(time_span span, callback<void()> f) {
  state_->schedule(
      {.at = cordma::after(now(), span), .kind = detail::event_kind::call, .call = std::move(f)});
}
void world::partition(host& one, host& other) { state_->network().cut(one.state_, other.state_); }
void world::heal() { state_->network().heal(); }
void world::run() { state_->run(); }
time_point world::now() const noexcept { return state_->now(); }
std::uint64_t world::trace_hash() const noexcept { return state_->hash(); }
std::uint64_t world::events() const noexcept { return state_->events(); }

}  // namespace cordma::sim
