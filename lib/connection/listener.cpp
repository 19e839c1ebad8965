#include <cordma/connection/listener.hpp>

#include "bootstrap.hpp"
#include "connection_state.hpp"
#include "listener_state.hpp"

#include <cordma/coro/with_timeout.hpp>

namespace cordma {

namespace {

task<connection> shake_hands(connection_resources resources, connection_options options,
                             stream_socket& stream) {
  const handshake::hello remote = co_await bootstrap::read_hello(stream);
  auto state = std::make_unique<detail::connection_state>(resources, options, stream);
  // The queue pair is ready to receive before the client knows its address: the client may send as
  // soon as it has this side's hello.
  state->agree(remote);
  co_await bootstrap::send(stream, handshake::encode(state->local_hello));
  co_await bootstrap::read_acceptance(stream);
  co_await bootstrap::send(stream, handshake::encode(handshake::verdict::accepted()));
  state->watch_over(std::move(stream));
  co_return connection{std::move(state)};
}

}  // namespace

namespace detail {

socket_address listening_address(const endpoint& local) {
  if (local.host.empty()) return socket_address::loopback(local.port);
  return socket_address::resolve(local.host, local.port).front();
}

endpoint endpoint_of(const socket_address& address) {
  std::string host = address.to_string();
  host.erase(host.rfind(':'));
  if (host.starts_with('[')) host = host.substr(1, host.size() - 2);
  return {host, address.port()};
}

}  // namespace detail

namespace {

task<connection> next_of(detail::listener_state& state) {
  for (;;) {
    std::optional<connection> next = co_await state.accept();
    if (!next) throw error{{.code = errc::closed, .call = "accept"}};
    if (next->is_open()) co_return std::move(*next);  // The client may have left meanwhile.
  }
}

}  // namespace

listener::listener(connection_resources resources, const endpoint& local,
                   const connection_options& options, const listener_options& limits) {
  static_cast<void>(detail::checked_port(resources.ctx, options));
  state_.reset(new detail::listener_state{
      resources.executor, detail::listening_address(local), limits,
      [=](stream_socket& stream) { return shake_hands(resources, options, stream); }});
}

void listener::dropper::operator()(detail::listener_state* state) const noexcept { state->drop(); }

task<connection> listener::accept() {
  CORDMA_ASSERT(state_ != nullptr, "used a listener that was moved from");
  return next_of(*state_);
}

listener::close_op listener::close() noexcept {
  CORDMA_ASSERT(state_ != nullptr, "used a listener that was moved from");
  state_->close();
  return close_op{state_->all_ended};
}

cordma::executor& listener::executor() const noexcept { return state_->executor; }
endpoint listener::local_endpoint() const { return detail::endpoint_of(state_->local_address()); }

const listener_counters& listener::counters() const noexcept { return state_->counters; }
const std::optional<failure>& listener::last_rejection() const noexcept {
  return state_->last_rejection;
}

task<connection> detail::accept(handshake_set::member& handshake, connection_resources resources,
                                stream_socket stream, connection_options options) {
  result<connection> made =
      co_await as_result(handshake.run(shake_hands(resources, options, stream)));
  if (!made.has_failure()) co_return std::move(made).value();
  co_await handshake.refuse(stream, made.failure());
  throw error{made.failure()};
}

task<connection> accept(connection_resources resources, stream_socket stream,
                        connection_options options, time_span handshake_timeout) {
  result<connection> made = co_await as_result(with_timeout(
      shake_hands(resources, options, stream), handshake_timeout, &resources.executor));
  if (!made.has_failure()) co_return std::move(made).value();
  const failure why = bootstrap::name_timeout(made.failure(), "handshake", handshake_timeout);
  co_await bootstrap::refuse(stream, why);
  throw error{why};
}

}  // namespace cordma
