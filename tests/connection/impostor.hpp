#pragma once

#include "connection/bootstrap.hpp"
#include "connection/connection_state.hpp"
#include "connection/link.hpp"
#include "connection/shake_hands.hpp"
#include "io/stream_channel.hpp"
#include "security/tls_channel.hpp"
#include "support/some_hello.hpp"

#include <cordma/coro/when_all.hpp>
#include <cordma/runtime/runtime.hpp>

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

namespace cordma::test {

inline credentials some_key() { return credentials::psk({"db-1", std::vector(32, std::byte{7})}); }

inline connection_options lender_with(const credentials& key) {
  connection_options o;
  o.credentials = &key;
  o.agent.lending.bytes_max = 1 << 20;
  return o;
}

/// TLS with `key` over a socket pair: another connection of whoever has the key.
struct other_connection {
  other_connection(cordma::executor& executor, const credentials& key) {
    std::array<int, 2> fds{};
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds.data()) != 0)
      throw std::runtime_error{"socketpair"};
    for (std::size_t n = 0; n < fds.size(); ++n) {
      ends[n] = std::make_unique<tls_channel>(
          key, std::make_unique<stream_channel>(stream_socket{executor, unique_fd{fds[n]}}));
    }
    executor.run(when_all(ends[0]->shake_hands(tls_role::client, ""),
                          ends[1]->shake_hands(tls_role::server, "")));
  }
  std::array<std::unique_ptr<tls_channel>, 2> ends;
};

/// Gives why there is no connection; one that is made nevertheless is dropped.
inline task<failure> why_none(task<connection> made) {
  const result<connection> outcome = co_await as_result(std::move(made));
  co_return outcome.has_failure() ? outcome.failure() : failure{};
}

/// A side of a handshake that has the right key, from the hello on.
struct impostor {
  using frame = handshake::frame_bytes_t;

  std::function<void(frame&)> change{};  ///< Changes its hello, after it has made its proof of it.
  bool proves = true;
  bool asks = true;                     ///< For memory, after its proof.
  const tls_channel* prover = nullptr;  ///< Makes its proof; null: its own connection.
  bool sends_unproved = false;          ///< A message, before its proof.
  /// Sends a message after its acceptance and the listener's proof, before its own proof.
  bool sends_accepted = false;
  /// Sends a message between its proof and its acceptance, and then calls this.
  std::function<void()> after_early_message{};

  /// Changes a bit of that byte (docs/handshake.md).
  static impostor at(std::size_t index) {
    return {.change = [index](frame& hello) { hello[index] ^= std::byte{1}; }};
  }

  struct outcome {
    bool has_memory = false;
    failure told{};
  };
  /// Ends when the other side has ended, or has lent memory to a side that tells the truth.
  task<outcome> speak(detail::connection_state& state, detail::link& peer_link,
                      tls_role role) const {
    const bool is_client = role == tls_role::client;
    const frame honest = handshake::encode(state.local_hello);
    frame said = honest;
    if (change) change(said);
    if (is_client) co_await say(peer_link.channel(), said);
    const result<handshake::received_hello> heard =
        co_await as_result(bootstrap::read_hello(peer_link.channel()));
    if (heard.has_failure()) co_return outcome{.told = heard.failure()};
    const handshake::received_hello& theirs = *heard;
    const auto proof = [&](const tls_channel& tls, bool of_client, const frame& own) {
      std::array<std::byte, 2 * handshake::frame_bytes> hellos;
      const auto second = std::ranges::copy(is_client ? own : theirs.bytes, hellos.begin()).out;
      std::ranges::copy(is_client ? theirs.bytes : own, second);
      return tls.export_secret(of_client ? "EXPORTER-cordma-client" : "EXPORTER-cordma-server",
                               hellos);
    };
    std::optional<agent_protocol::payload> expected;
    // A listener's proof comes late: a liar would take memory before it.
    if (is_honest() || !is_client || sends_accepted)
      expected = proof(*peer_link.tls(), !is_client, said);
    state.agree(theirs, is_client ? handshake::side::client : handshake::side::listener, expected);
    if (!is_client) {
      co_await say(peer_link.channel(), said);
      const result<void> verdict = co_await as_result(
          bootstrap::read_acceptance(peer_link.channel(), state.local_hello.nonce));
      if (verdict.has_failure()) co_return outcome{.told = verdict.failure()};
    }
    if (sends_unproved) co_await send(state);
    if (sends_accepted) {
      co_await say_accepted(peer_link.channel(), theirs.nonce);
      co_await state.proved();
      co_await send(state);
    }
    if (proves)
      state.agent->send_proof(
          proof(prover != nullptr ? *prover : *peer_link.tls(), is_client, honest));
    if (is_honest()) {
      co_await say_accepted(peer_link.channel(), theirs.nonce);
      if (is_client) {
        co_await bootstrap::read_acceptance(peer_link.channel(), state.local_hello.nonce);
        co_await state.proved();
        if (after_early_message) {
          co_await send(state);
          after_early_message();
        }
        co_await say_accepted(peer_link.channel(), theirs.nonce);
      }
      co_return outcome{.has_memory = co_await ask(state)};
    }
    auto [has_memory, told] = co_await when_all(ask(state), end(state, peer_link, theirs));
    co_return outcome{has_memory, told};
  }

 private:
  [[nodiscard]] bool is_honest() const {
    return !change && proves && prover == nullptr && !sends_unproved && !sends_accepted;
  }
  static task<> send(detail::connection_state& state) {
    local_mr word = state.memory.allocate_zeroed(4);
    co_await state.qp.send(word.slice());
  }
  task<bool> ask(detail::connection_state& state) const {
    if (!asks) co_return false;
    co_return (co_await as_result(state.agent->borrows.request(64, {}))).has_value();
  }
  /// Accepts, and gives what the other side says or does about that.
  static task<failure> end(detail::connection_state& state, detail::link& peer_link,
                           const handshake::hello& theirs) {
    co_await say_accepted(peer_link.channel(), theirs.nonce);
    const result<void> told = co_await as_result(
        bootstrap::read_acceptance(peer_link.channel(), state.local_hello.nonce));
    state.abort(errc::closed, "test");  // The request will not be answered.
    co_return told.has_failure() ? told.failure() : failure{};
  }
};

/// The impostor's side of a connection to `acceptor`, with the options' credentials.
inline task<impostor::outcome> knock(runtime& rt, const listener& acceptor,
                                     connection_options options, impostor said) {
  detail::link peer_link{co_await stream_socket::connect(
      rt.executor(), socket_address::loopback(acceptor.local_endpoint().port))};
  detail::connection_state state{rt.resources(), options, peer_link.local, peer_link.peer};
  const handshake::start start = detail::make_start(options);
  state.local_hello.nonce = start.nonce;
  co_await say(peer_link.channel(), handshake::encode(start));
  co_await peer_link.secure(options.credentials, tls_role::client);
  co_return co_await said.speak(state, peer_link, tls_role::client);
}

}  // namespace cordma::test
