#include <cordma/connection/connection.hpp>

#include "addresses.hpp"
#include "bootstrap.hpp"
#include "cm_acceptor.hpp"
#include "connect.hpp"
#include "connection_state.hpp"
#include "io/logger.hpp"
#include "shake_hands.hpp"

#include <cordma/connection/listener.hpp>
#include <cordma/coro/with_timeout.hpp>
#include <cordma/io/socket_address.hpp>

#include <new>

namespace cordma {
namespace {

task<> finish(std::unique_ptr<detail::connection_state> state) {
  static_cast<void>(co_await as_result(state->drain()));
}

task<> close_state(detail::connection_state* state) {
  if (state != nullptr) co_await state->close();
}

/// Connects to the first of the host's addresses that answers.
task<stream_socket> connect_stream(cordma::executor& executor, const endpoint& server) {
  failure last{};
  for (const socket_address& address : detail::addresses_of(executor, server)) {
    result<stream_socket> stream = co_await as_result(stream_socket::connect(executor, address));
    if (stream.is_cancelled()) throw cancelled{};
    if (stream.has_value()) co_return std::move(*stream);
    last = stream.failure();
  }
  throw error{last};
}

/// Connects to the endpoint's own kind of listener.
task<connection> connect_to(connection_resources resources, endpoint server,
                            connection_options options) {
  static_cast<void>(detail::checked_port(resources.ctx, options));
  if (server.kind == endpoint::bootstrap::rdma_cm)
    co_return co_await detail::connect_by_cm(resources, server, options);
  detail::link peer_link{co_await connect_stream(resources.executor, server), server.host,
                         detail::socket_origin::own};
  co_return co_await detail::shake_hands_as_client(resources, options, peer_link);
}

/// The task keeps the event, since it may start when the connection has gone.
task<> wait_for_end(std::shared_ptr<event> ended) { co_await ended->wait(); }

template <class T>
task<T> refuse_without_agent(const detail::connection_state& state) {
  throw error{{.code = errc::not_supported,
               .call = "agent",
               .detail = state.is_reliable()
                             ? "this side or the peer has none: connection_options::agent.enabled"
                             : "remote memory needs RC: connection_options::transport"}};
  co_return T();
}

/// Returns the task's outcome, or a failure that names the call and the deadline.
template <class T>
task<T> within(task<T> t, time_span limit, const char* call, cordma::executor& executor) {
  result<T> outcome = co_await as_result(with_timeout(std::move(t), limit, &executor));
  if (outcome.has_failure()) throw error{bootstrap::name_timeout(outcome.failure(), call, limit)};
  co_return std::move(outcome).value();
}

}  // namespace

connection::connection(std::unique_ptr<detail::connection_state> state) noexcept
    : state_{state.release()}, sends_{&state_->qp.sends()}, qp_{&state_->qp} {}

void connection::dropper::operator()(detail::connection_state* dropped) const noexcept {
  std::unique_ptr<detail::connection_state> state{dropped};
  state->abort(errc::closed, "close");
  scope& closer = state->executor.closer();
  try {
    closer.spawn(finish(std::move(state)));
  } catch (const std::bad_alloc&) {
    // The end does not wait for the flushes: `ibv_destroy_qp` takes the memory from the device,
    // too.
  }
}

void connection::post_recv(std::span<const local_mr_slice> buffer) { qp().post_recv(buffer); }

verbs::queue_pair& connection::verbs() noexcept { return qp().verbs(); }

receive_queue& connection::receives() noexcept { return qp().receives(); }

bool connection::is_open() const noexcept { return qp_ != nullptr && !qp_->has_failed(); }

task<> connection::close() { return close_state(state_.get()); }

task<> connection::ended() { return wait_for_end(state_->ended); }

std::optional<failure> connection::why_lost() const noexcept {
  if (is_open()) return std::nullopt;
  failure f = qp().failure_reason().to_failure(local_hello().qpn);
  std::string detail = "peer " + peer().to_string();
  if (!f.detail.empty()) detail.append(": ").append(f.detail.view());
  if (const cordma::agent* const a = state_->agent.get(); a != nullptr && a->bad_frame)
    detail.append(": ").append(a->bad_frame->detail.view());
  f.detail = std::string_view{detail};
  return f;
}

bool connection::was_closed_by_peer() const noexcept {
  return state_ != nullptr && state_->peer_said_goodbye;
}

task<remote_mr> connection::request_remote_mr(std::size_t size_bytes, remote_mr_request request) {
  if (!has_agent()) return refuse_without_agent<remote_mr>(*state_);
  return agent()->borrows.request(size_bytes, request);
}
task<loan> connection::send_local_mr(local_mr memory, loan_options options) {
  if (!has_agent()) return refuse_without_agent<loan>(*state_);
  return agent()->lends.lend(std::move(memory), options);
}
task<> connection::send_remote_mr(remote_mr memory) {
  if (!has_agent()) return refuse_without_agent<void>(*state_);
  return within(agent()->borrows.hand_over(std::move(memory)),
                agent()->context.options.request_timeout, "send_remote_mr", state_->executor);
}
task<local_mr> connection::receive_local_mr() {
  return has_agent() ? agent()->lends.receive() : refuse_without_agent<local_mr>(*state_);
}
task<remote_mr> connection::receive_remote_mr() {
  return has_agent() ? agent()->borrows.receive() : refuse_without_agent<remote_mr>(*state_);
}
bool connection::has_agent() const noexcept {
  return state_->agent != nullptr && state_->is_reliable();
}
cordma::agent* connection::agent() noexcept { return has_agent() ? state_->agent.get() : nullptr; }
const lending_counters& connection::lending() const noexcept {
  static constexpr lending_counters none{};
  return has_agent() ? state_->agent->context.counters : none;
}
std::optional<failure> connection::last_refusal() const {
  if (!has_agent() || !state_->agent->context.last_refusal) return std::nullopt;
  failure f = *state_->agent->context.last_refusal;
  const std::string detail = "peer " + peer().to_string() + ' ' + std::string{f.detail.view()};
  f.detail = std::string_view{detail};
  return f;
}
std::vector<lease_info> connection::leases() const {
  if (!has_agent()) return {};
  std::vector<lease_info> all = state_->agent->leases();
  for (lease_info& one : all) one.peer = peer().to_string();
  return all;
}
mr_allocator& connection::memory() noexcept { return state_->memory; }

const socket_address& connection::local() const noexcept { return state_->local; }
const socket_address& connection::peer() const noexcept { return state_->peer; }
const identity& connection::peer_identity() const noexcept { return state_->peer_identity; }
const std::array<std::byte, 64>& connection::peer_private_data() const noexcept {
  return state_->peer_hello.private_data;
}
std::uint32_t connection::peer_qpn() const noexcept { return state_->peer_hello.qpn; }
const handshake::hello& connection::local_hello() const noexcept { return state_->local_hello; }
const handshake::hello& connection::peer_hello() const noexcept { return state_->peer_hello; }
const handshake::agreement& connection::agreement() const noexcept { return state_->agreement; }

namespace detail {

task<connection> connect(connection_resources resources, stream_socket stream,
                         connection_options options) {
  static_cast<void>(checked_port(resources.ctx, options));
  link peer_link{std::move(stream)};
  result<connection> made =
      co_await as_result(within(shake_hands_as_client(resources, options, peer_link),
                                options.connect_timeout, "connect", resources.executor));
  if (made.has_failure()) {
    log_to(resources.log, event_log::kind::connect_failed,
           {.peer = &peer_link.peer, .local = &peer_link.local, .why = &made.failure()});
  }
  co_return std::move(made).value();
}

task<connection> connect(connection_resources resources, endpoint server,
                         connection_options options) {
  const time_span limit = options.connect_timeout;
  result<connection> made = co_await as_result(
      with_timeout(connect_to(resources, server, options), limit, &resources.executor));
  if (!made.has_failure()) co_return std::move(made).value();
  failure why = bootstrap::name_timeout(made.failure(), "connect", limit);
  const std::string where = server.to_string();
  std::string detail{why.detail.view()};
  // rdma_cm's calls name an address without the way there.
  const std::string address = where.substr(where.find(':') + 1) + ": ";
  if (server.kind == endpoint::bootstrap::rdma_cm && detail.starts_with(address))
    detail.erase(0, address.size());
  // A failed call that names its address or host begins its detail with that.
  const bool is_named = detail.starts_with(where) || detail.starts_with('"' + server.host + '"');
  if (!is_named) detail = detail.empty() ? where : where + ": " + detail;
  detail.insert(0, "to ");
  why.detail = std::string_view{detail};
  log_to(resources.log, event_log::kind::connect_failed, {.peer_name = where, .why = &why});
  throw error{why};
}

}  // namespace detail

}  // namespace cordma
