#include <cordma/datagram/datagram_socket.hpp>

#include "datagram_state.hpp"
#include "ip_group.hpp"
#include "queue/receive_queue.hpp"

#include <utility>

namespace cordma {

datagram_socket::datagram_socket(const connection_resources& resources,
                                 const datagram_options& options)
    : state_{*new detail::datagram_state{resources, options}}, sends_{&state().qp().sends()} {}
datagram_socket::datagram_socket(datagram_socket&& other) noexcept = default;
datagram_socket& datagram_socket::operator=(datagram_socket&& other) noexcept {
  if (this == &other) return *this;
  if (state_) state_->close();
  state_ = std::move(other.state_);
  sends_ = other.sends_;
  return *this;
}
datagram_socket::~datagram_socket() {
  if (state_) state_->close();
}

detail::datagram_state& datagram_socket::state() const noexcept { return detail::state_of(state_); }

detail::datagram_receiver datagram_socket::receiver() const noexcept {
  return {state().qp().receives(), state().address()};
}

const datagram_address& datagram_socket::address() const noexcept { return state().address(); }
std::size_t datagram_socket::payload_max() const noexcept { return state().payload_max(); }
const datagram_counters& datagram_socket::counters() const noexcept { return state().counters(); }

void datagram_socket::post_recv(std::span<const local_mr_slice> buffer) {
  state().qp().receives().post(buffer);
}

task<> datagram_socket::find_route(datagram_address to) {
  return detail::datagram_state::find_route(state_, to);
}

endpoint datagram_socket::publish(const endpoint& local) { return state().publish(local); }
task<datagram_address> datagram_socket::resolve(endpoint server) {
  return detail::datagram_state::resolve(state_, std::move(server));
}

task<multicast_membership> datagram_socket::member(detail::counted_ref<detail::datagram_state> of,
                                                   ibv_gid mgid, bool send_only) {
  co_return multicast_membership{
      co_await detail::datagram_state::join(std::move(of), mgid, send_only)};
}

task<multicast_membership> datagram_socket::join(std::string_view ip_group,
                                                 const multicast_membership::options& options) {
  return member(state_, state().mgid_of(detail::parse_ip_group(ip_group)), options.send_only);
}

task<multicast_membership> datagram_socket::join(const ibv_gid& mgid,
                                                 const multicast_membership::options& options) {
  return member(state_, mgid, options.send_only);
}

const datagram_address& multicast_membership::address() const noexcept { return group_->address(); }
std::optional<failure> multicast_membership::why_lost() const noexcept {
  return group_->why_lost();
}

std::optional<failure> datagram_socket::why_lost() const noexcept {
  if (!state().qp().has_failed()) return std::nullopt;
  return state().qp().failure_reason().to_failure(address().qpn);
}

}  // namespace cordma
