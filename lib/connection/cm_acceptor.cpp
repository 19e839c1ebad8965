#include "cm_acceptor.hpp"

#include "addresses.hpp"
#include "base/failures.hpp"
#include "bootstrap.hpp"
#include "bootstrap_services.hpp"
#include "cm_link.hpp"
#include "connection_state.hpp"
#include "security/tls_channel.hpp"
#include "shake_hands.hpp"

#include <cordma/connection/listener.hpp>

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <utility>
#include <variant>

namespace cordma::detail {
namespace {

/// Reads what a peer's request or reply begins with. \errors errc::bad_handshake: no cordma.
handshake::start start_of(const cm::peer_message& said) {
  const auto bytes = said.data().first(std::min(said.data().size(), handshake::start_bytes));
  try {
    const handshake::frame f = handshake::decode(bytes);
    if (const auto* const start = std::get_if<handshake::start>(&f)) return *start;
  } catch (const error& e) {
    if (e.code() == errc::incompatible_peer) throw;
  }
  throw_failure(errc::bad_handshake, "rdma_cm",
                "the peer's private data is not a cordma's: set connection_options::plain for a "
                "peer that is another program");
}

/// A verdict as a rejection carries it: its first bytes.
std::array<std::byte, cm::rejection_bytes_max> rejection_of(const failure& why) {
  std::array<std::byte, cm::rejection_bytes_max> bytes;
  const auto whole = handshake::encode(handshake::verdict::refused(why));
  std::copy_n(whole.begin(), bytes.size(), bytes.begin());
  return bytes;
}

/// Returns if a rejection is not a cordma's. \errors the failure that it names.
void throw_rejection(const cm::peer_message& said) {
  handshake::frame_bytes_t whole{};
  std::copy_n(said.data().begin(), std::min(said.data().size(), whole.size()), whole.begin());
  std::optional<failure> why;
  try {
    const handshake::frame f = handshake::decode(whole);
    if (const auto* const verdict = std::get_if<handshake::verdict>(&f))
      why = verdict->to_failure();
  } catch (const error&) {
    return;
  }
  if (why) throw error{*why};
}

/// The options, with what rdma_cm has found in place of what they choose.
connection_options found_by(const cm::id& id, const connection_resources& resources,
                            connection_options options) {
  if (id.device_name() != resources.ctx.name()) {
    throw_failure(
        errc::no_device, "rdma_cm",
        detail_text("device %.*s has the address %s, the runtime is on %s: make one on "
                    "the other device",
                    int(id.device_name().size()), id.device_name().data(),
                    id.local().to_string().c_str(), std::string{resources.ctx.name()}.c_str()));
  }
  const cm::init_attributes init = id.init();
  options.port = init.port;
  options.pkey_index = init.pkey_index;
  options.gid_index.reset();  // The GID is the address that rdma_cm has chosen.
  if (options.plain) options.agent.enabled = false;
  if (!options.plain && !options.agent.enabled) {
    throw_failure(errc::not_supported, "rdma_cm",
                  "agent.enabled is false: rdma_cm connects the agents' queue pairs, or with "
                  "connection_options::plain the only one");
  }
  return options;
}

/// Returns the limits that one queue pair asks for.
cm::parameters parameters_of(const connection_state& state, const connection_options& options) {
  cm::parameters own{.responder_resources = 0, .initiator_depth = 0};
  own.retry_count = options.retry_cnt;
  own.rnr_retry_count = options.rnr_retry;
  if (!options.plain) return own;
  const auto byte = [](std::uint32_t value) { return std::uint8_t(std::min(value, 255u)); };
  own.responder_resources = byte(state.local_hello.rd_atomic_responder);
  own.initiator_depth = byte(state.local_hello.rd_atomic_initiator);
  return own;
}

std::uint32_t qpn_of(connection_state& state, const connection_options& options) {
  return options.plain ? state.qp.verbs().num() : state.agent->control().verbs().num();
}

void bring_up(connection_state& state, const connection_options& options, const cm::id& id) {
  const cm::parameters own = parameters_of(state, options);
  if (options.plain) {
    state.prepost();
    return state.connect_plain(id.rtr(own), id.rts(own));
  }
  state.connect_control(id.rtr(own), id.rts(own));
}

std::span<const std::byte> plain_data(const connection_options& options) {
  return std::span{options.private_data}.first(cm::request_bytes_max);
}

/// The connection shows what the peer said in its request or reply.
void keep_private_data(connection_state& state, const cm::peer_message& said) {
  const auto data = said.data();
  auto& kept = state.peer_hello.private_data;
  std::copy_n(data.begin(), std::min(data.size(), kept.size()), kept.begin());
}

class request_arrival final : public arrival {
 public:
  explicit request_arrival(cm::id request) : arrival{request.peer()}, id_{std::move(request)} {}

  [[nodiscard]] bool may_move_to(const connection_resources& other) const noexcept override {
    return id_->device_name() == other.ctx.name();
  }
  void move_to(const connection_resources& other) override {
    id_->move_to(other.bootstraps.cm_events());
  }
  task<connection> shake_hands(const handshake_terms& terms) override;
  task<> refuse(failure why) override;

 private:
  task<connection> accept_plain(const connection_resources& resources, connection_options options,
                                const admission& admit);

  std::optional<cm::id> id_;                 // Until `link_` has it.
  std::unique_ptr<connection_state> state_;  // Until the connection has it.
  std::optional<link> link_;                 // Runs over the agent of `state_`.
};

task<connection> request_arrival::shake_hands(const handshake_terms& terms) {
  const connection_options options = found_by(*id_, terms.resources, terms.options);
  if (options.plain) co_return co_await accept_plain(terms.resources, options, terms.admit);
  const handshake::start theirs = start_of(id_->from_peer());
  check_mode(theirs, options);
  const socket_address local = id_->local();
  state_ = std::make_unique<connection_state>(terms.resources, options, local, peer);
  const handshake::start ours = make_start(options);
  state_->local_hello.nonce = ours.nonce;
  bring_up(*state_, options, *id_);
  byte_channel& bytes = state_->agent->start_bytes();
  id_->accept(qpn_of(*state_, options), handshake::encode(ours), parameters_of(*state_, options));
  co_await id_->established();
  link_.emplace(local, peer, std::make_unique<cm_link>(*state_, &bytes, std::exchange(id_, {})));
  co_await link_->secure(options.credentials, tls_role::server);
  co_return co_await agree_as_server(theirs, options, *link_, terms.admit,
                                     [this]() -> auto& { return state_; });
}

task<connection> request_arrival::accept_plain(const connection_resources& resources,
                                               connection_options options, const admission& admit) {
  co_await end_if_stopped();
  admit_plain(admit, options, peer, id_->from_peer().data());
  state_ = std::make_unique<connection_state>(resources, options, id_->local(), peer);
  keep_private_data(*state_, id_->from_peer());
  bring_up(*state_, options, *id_);
  id_->accept(qpn_of(*state_, options), options.private_data, parameters_of(*state_, options));
  co_await id_->established();
  state_->watch_over(std::make_unique<cm_link>(*state_, nullptr, std::exchange(id_, {})));
  co_return connection{std::move(state_)};
}

task<> request_arrival::refuse(failure why) {
  if (link_) co_return co_await bootstrap::refuse(link_->refusal_channel(), link_->for_peer(why));
  // The end of the id tells a client that was accepted and has not confirmed. After rdma_reject the
  // kernel (6.1) would go on to repeat the reply, and the end of the id wait for that for a minute.
  if (!id_ || !id_->awaits_answer()) co_return;
  try {
    id_->reject(rejection_of(why));
  } catch (const error&) {
    // The client has gone.
  }
}

}  // namespace

cm_acceptor::cm_acceptor(cm::event_channel& events, const socket_address& local, int backlog)
    : requests_{events, local, backlog,
                rejection_of({.code = errc::refused,
                              .call = "handshake",
                              .detail = detail_text("too many clients at once, the listener's "
                                                    "tcp_backlog is %d: try again",
                                                    backlog)})} {}

task<std::unique_ptr<arrival>> cm_acceptor::accept() {
  cm::id request = co_await requests_.accept();
  co_return std::make_unique<request_arrival>(std::move(request));
}

namespace {

/// Returns an id that has found the way to the first of the server's addresses that has one.
task<cm::id> resolved(cm::event_channel& events, endpoint server) {
  failure last{};
  for (const socket_address& address : addresses_of(events.executor(), server)) {
    cm::id id{events};
    const result<void> found = co_await as_result(id.resolve(address));
    if (found.is_cancelled()) throw cancelled{};
    if (found.has_value()) co_return std::move(id);
    last = found.failure();
  }
  throw error{last};
}

/// Sends the request. \errors what the peer's refusal says.
task<> request(cm::id& id, std::uint32_t qpn, std::span<const std::byte> data, cm::parameters own) {
  const result<void> outcome = co_await as_result(id.connect(qpn, data, own));
  if (outcome.is_cancelled()) throw cancelled{};
  if (outcome.has_value()) co_return;
  throw_rejection(id.from_peer());
  throw error{outcome.failure()};
}

}  // namespace

task<connection> connect_by_cm(connection_resources resources, endpoint server,
                               connection_options options) {
  cm::id id = co_await resolved(resources.bootstraps.cm_events(), server);
  options = found_by(id, resources, options);
  auto state = std::make_unique<connection_state>(resources, options, id.local(), id.peer());
  const handshake::start ours = make_start(options);
  const handshake::start_bytes_t greeting = handshake::encode(ours);
  state->local_hello.nonce = ours.nonce;
  const std::span<const std::byte> data = options.plain ? plain_data(options) : greeting;
  co_await request(id, qpn_of(*state, options), data, parameters_of(*state, options));
  std::optional<handshake::start> theirs;
  if (!options.plain) check_mode(theirs.emplace(start_of(id.from_peer())), options);
  bring_up(*state, options, id);
  if (options.plain) {
    keep_private_data(*state, id.from_peer());
    id.establish();
    state->watch_over(std::make_unique<cm_link>(*state, nullptr, std::move(id)));
    co_return connection{std::move(state)};
  }
  byte_channel& bytes = state->agent->start_bytes();
  id.establish();
  const socket_address local = id.local();
  const socket_address peer = id.peer();
  link peer_link{local, peer, std::make_unique<cm_link>(*state, &bytes, std::move(id)),
                 server.host};
  co_await peer_link.secure(options.credentials, tls_role::client);
  co_return co_await agree_as_client(state, peer_link, theirs->nonce);
}

}  // namespace cordma::detail
