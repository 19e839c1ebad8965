#pragma once

#include "cm/rig.hpp"
#include "connection/addresses.hpp"
#include "connection/bootstrap_services.hpp"
#include "connection/cm_link.hpp"
#include "connection/connection_state.hpp"
#include "connection/shake_hands.hpp"
#include "support/connected_pair.hpp"
#include "support/messages_pass.hpp"

#include <cordma/connection/endpoint.hpp>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

namespace cordma::test {

/// A runtime, and where rdma_cm finds its device.
struct cm_runtime {
  explicit cm_runtime(runtime_options options = {})
      : rt{on_test_device(std::move(options))},
        address{cm::test::device_address(rt.context(), rt.context().active_port().number)} {}
  /// Listens by rdma_cm. Strangers reach the address of a device that is not soft0.
  listener listen(connection_options options = {}, const listener_options& limits = {}) {
    options.insecure = true;
    return rt.listen(here(), limits, options);
  }
  [[nodiscard]] endpoint here() const { return by_cm(address); }
  [[nodiscard]] static endpoint by_cm(const socket_address& at) {
    endpoint where = detail::endpoint_of(at);
    where.kind = endpoint::bootstrap::rdma_cm;
    return where;
  }
  /// Where a client of librdmacm's own finds `acceptor`.
  [[nodiscard]] socket_address address_of(const listener& acceptor) const {
    socket_address to = address;
    to.set_port(acceptor.local_endpoint().port);
    return to;
  }
  failure failure_of(task<connection> t) {
    const auto outcome = rt.run(as_result(std::move(t)));
    return outcome.has_failure() ? outcome.failure() : failure{};
  }
  cm::event_channel& events() { return rt.resources().bootstraps.cm_events(); }

  runtime rt;
  socket_address address;
};

/// One side of a handshake over rdma_cm, from the hello on spoken by the test.
class cm_speaker {
 public:
  explicit cm_speaker(cm_runtime& r) : cm_speaker{r, r.rt.connection_defaults()} {}
  cm_speaker(cm_runtime& r, const connection_options& options)
      : resources_{r.rt.resources()}, events_{r.events()}, options_{options} {}

  /// Connects the agents' queue pairs, as a client.
  task<> connect(socket_address to) {
    cm::id id{events_};
    co_await id.resolve(to);
    const auto start = prepare(id);
    const result<void> answer = co_await as_result(id.connect(control_qpn(), start, own_));
    if (answer.has_failure()) {
      rejection = said_in(id.from_peer());
      throw error{answer.failure()};
    }
    state->connect_control(id.rtr(own_), id.rts(own_));
    byte_channel& bytes = state->agent->start_bytes();
    id.establish();
    channel = std::make_unique<detail::cm_link>(*state, &bytes, std::move(id));
  }
  /// Connects the agents' queue pairs, as a listener.
  task<> accept(cm::listener& from) {
    cm::id id = co_await from.accept();
    const auto start = prepare(id);
    state->connect_control(id.rtr(own_), id.rts(own_));
    byte_channel& bytes = state->agent->start_bytes();
    id.accept(control_qpn(), start, own_);
    co_await id.established();
    channel = std::make_unique<detail::cm_link>(*state, &bytes, std::move(id));
  }
  task<> say_hello() {
    const auto hello = handshake::encode(state->local_hello);
    co_await write_all(*channel, hello);
  }

  std::unique_ptr<detail::connection_state> state;
  std::unique_ptr<byte_channel> channel;
  handshake::start_bytes_t start_flips{};  ///< Bits of the start that change on its way.
  std::optional<failure> rejection;        ///< The reason in the answer to a refused request.

 private:
  static std::optional<failure> said_in(const cm::peer_message& answer) {
    handshake::frame_bytes_t whole{};
    std::ranges::copy(answer.data().first(std::min(answer.data().size(), whole.size())),
                      whole.begin());
    const handshake::frame said = handshake::decode(whole);
    return std::get<handshake::verdict>(said).to_failure();
  }
  handshake::start_bytes_t prepare(const cm::id& id) {
    state = std::make_unique<detail::connection_state>(resources_, options_, id.local(), id.peer());
    const handshake::start start = detail::make_start(options_);
    state->local_hello.nonce = start.nonce;
    auto bytes = handshake::encode(start);
    for (std::size_t n = 0; n < bytes.size(); ++n) bytes[n] ^= start_flips[n];
    return bytes;
  }
  std::uint32_t control_qpn() { return state->agent->control().verbs().num(); }

  connection_resources resources_;
  cm::event_channel& events_;
  connection_options options_;
  const cm::parameters own_{.responder_resources = 0, .initiator_depth = 0};
};

}  // namespace cordma::test
