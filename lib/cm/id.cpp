#include "id.hpp"

#include "id_state.hpp"

#include <utility>

namespace cordma::cm {

id::id() noexcept = default;
id::id(event_channel& channel) : state_{std::make_unique<id_state>(channel)} {}
id::id(event_channel& channel, owned_id request, const peer_message& message)
    : state_{std::make_unique<id_state>(channel, std::move(request), message)} {}
id::id(id&&) noexcept = default;
id& id::operator=(id&&) noexcept = default;
id::~id() = default;

task<> id::resolve(socket_address to, std::optional<socket_address> from, time_span limit) {
  return state_->resolve(to, from, limit);
}
task<> id::connect(std::uint32_t qpn, std::span<const std::byte> data, parameters own) {
  return state_->connect(qpn, data, own);
}
void id::establish() { state_->establish(); }
void id::accept(std::uint32_t qpn, std::span<const std::byte> data, const parameters& own) {
  state_->accept(qpn, data, own);
}
task<> id::established() { return state_->established(); }
bool id::awaits_answer() const noexcept { return state_->awaits_answer(); }
void id::reject(std::span<const std::byte> data) { state_->reject(data); }

void id::disconnect() noexcept { state_->disconnect(); }
void id::on_notice(callback<void(notice)> told) noexcept { state_->told = std::move(told); }
const std::optional<failure>& id::why_ended() const noexcept { return state_->why_ended; }

const peer_message& id::from_peer() const noexcept { return state_->from_peer; }
std::string_view id::device_name() const noexcept {
  const ibv_context* const device = state_->native_handle()->verbs;
  return device != nullptr ? ibv_get_device_name(device->device) : "";
}
std::uint8_t id::port() const noexcept { return state_->native_handle()->port_num; }
socket_address id::local() const noexcept { return state_->local(); }
socket_address id::peer() const noexcept { return state_->peer(); }

init_attributes id::init() const { return to_init(state_->attributes(IBV_QPS_INIT)); }
verbs::rtr_attributes id::rtr(const parameters& own) const {
  return to_rtr(state_->attributes(IBV_QPS_RTR), own);
}
verbs::rts_attributes id::rts(const parameters& own) const {
  return to_rts(state_->attributes(IBV_QPS_RTS), own);
}

void id::move_to(event_channel& other) { state_ = state_->moved_to(other); }

}  // namespace cordma::cm
