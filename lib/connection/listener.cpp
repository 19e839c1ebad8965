#include <cordma/connection/listener.hpp>

#include "addresses.hpp"
#include "base/failures.hpp"
#include "bootstrap.hpp"
#include "bootstrap_services.hpp"
#include "cm_acceptor.hpp"
#include "connect.hpp"
#include "connection_state.hpp"
#include "io/host_calls.hpp"
#include "io/logger.hpp"
#include "listener_state.hpp"
#include "shake_hands.hpp"
#include "stream_acceptor.hpp"

#include <cordma/coro/with_timeout.hpp>

namespace cordma {

namespace detail {

socket_address listening_address(cordma::executor& executor, const endpoint& local) {
  if (local.host.empty()) return socket_address::loopback(local.port);
  return addresses_of(executor, local).front();
}

std::vector<socket_address> addresses_of(cordma::executor& executor, const endpoint& where) {
  if (where.kind == endpoint::bootstrap::unix_socket)
    return {socket_address::unix_path(where.host)};
  return executor.reactor().host().resolve(where.host, where.port);
}

void check_reach(const socket_address& where, const connection_options& options) {
  if (options.credentials != nullptr || options.insecure || where.is_loopback()) return;
  throw_failure(errc::not_authenticated, "listen",
                detail_text("%s: whoever reaches it could connect: set connection_options::"
                            "credentials, or insecure to take everybody",
                            where.to_string().c_str()));
}

endpoint endpoint_of(const socket_address& address) {
  if (address.is_unix()) return address.to_string();
  std::string host = address.to_string();
  host.erase(host.rfind(':'));
  if (host.starts_with('[')) host = host.substr(1, host.size() - 2);
  return {host, address.port()};
}

task<connection> accept(connection_resources resources, stream_socket stream,
                        connection_options options, admission admit, time_span handshake_timeout) {
  link peer_link{std::move(stream)};
  result<connection> made =
      co_await as_result(with_timeout(shake_hands_as_server(resources, options, peer_link, admit),
                                      handshake_timeout, &resources.executor));
  if (!made.has_failure()) co_return std::move(made).value();
  const failure why = bootstrap::name_timeout(made.failure(), "handshake", handshake_timeout);
  log_to(resources.log, event_log::kind::client_refused,
         {.peer = &peer_link.peer, .local = &peer_link.local, .why = &why});
  co_await bootstrap::refuse(peer_link.refusal_channel(), peer_link.for_peer(why));
  throw error{why};
}

std::unique_ptr<acceptor> open_acceptor(const connection_resources& resources,
                                        endpoint::bootstrap kind, const socket_address& local,
                                        int backlog) {
  if (kind == endpoint::bootstrap::rdma_cm)
    return std::make_unique<cm_acceptor>(resources.bootstraps.cm_events(), local, backlog);
  return std::make_unique<stream_acceptor>(resources.executor, local, backlog);
}

}  // namespace detail

listener::listener(connection_resources resources, const endpoint& local,
                   const connection_options& options, const listener_options& limits) {
  static_cast<void>(detail::checked_port(resources.ctx, options));
  const socket_address where = detail::listening_address(resources.executor, local);
  detail::check_reach(where, options);
  check(limits);
  const auto shake_hands = [terms = detail::handshake_terms{resources, options, limits.admit}](
                               detail::arrival& client) { return client.shake_hands(terms); };
  state_.reset(new detail::listener_state{
      resources.executor, detail::open_acceptor(resources, local.kind, where, limits.tcp_backlog),
      shake_hands, limits, resources.log});
  state_->kind = local.kind;
  const std::string listens_at = local_endpoint().to_string();
  detail::log_to(resources.log, event_log::kind::listening, {.local_name = listens_at});
}

void listener::dropper::operator()(detail::listener_state* state) const noexcept { state->drop(); }

task<connection> listener::accept() {
  CORDMA_ASSERT(state_ != nullptr, "used a listener that was moved from");
  return state_->accept_open();
}

listener::close_op listener::close() noexcept {
  CORDMA_ASSERT(state_ != nullptr, "used a listener that was moved from");
  state_->close();
  return close_op{state_->all_ended};
}

cordma::executor& listener::executor() const noexcept { return state_->executor; }
endpoint listener::local_endpoint() const {
  endpoint where = detail::endpoint_of(state_->local_address());
  where.kind = state_->kind;
  return where;
}

const listener_counters& listener::counters() const noexcept { return state_->counters; }
const std::optional<failure>& listener::last_rejection() const noexcept {
  return state_->last_rejection;
}

}  // namespace cordma
