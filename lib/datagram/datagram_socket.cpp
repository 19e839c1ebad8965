#include <cordma/datagram/datagram_socket.hpp>

#include "datagram_state.hpp"
#include "queue/receive_queue.hpp"

#include <cordma/detail/base/assert.hpp>

#include <utility>

namespace cordma {

datagram_socket::datagram_socket(const connection_resources& resources,
                                 const datagram_options& options)
    : state_{*new detail::datagram_state{resources, options}} {}
datagram_socket::datagram_socket(datagram_socket&& other) noexcept = default;
datagram_socket& datagram_socket::operator=(datagram_socket&& other) noexcept {
  if (this == &other) return *this;
  if (state_) state_->close();
  state_ = std::move(other.state_);
  return *this;
}
datagram_socket::~datagram_socket() {
  if (state_) state_->close();
}

detail::datagram_state& datagram_socket::state() const noexcept {
  CORDMA_ASSERT(bool{state_}, "used a datagram socket that was moved from");
  return *state_.get();
}

receive_queue& datagram_socket::receives() const noexcept { return state().qp().receives(); }

const datagram_address& datagram_socket::address() const noexcept { return state().address(); }
std::size_t datagram_socket::payload_max() const noexcept { return state().payload_max(); }
const datagram_counters& datagram_socket::counters() const noexcept { return state().counters(); }

void datagram_socket::post_recv(std::span<const local_mr_slice> buffer) { receives().post(buffer); }

task<> datagram_socket::find_route(datagram_address to) {
  return detail::datagram_state::find_route(state_, to);
}

std::optional<failure> datagram_socket::why_lost() const noexcept {
  if (!state().qp().has_failed()) return std::nullopt;
  return state().qp().failure_reason().to_failure(address().qpn);
}

}  // namespace cordma
