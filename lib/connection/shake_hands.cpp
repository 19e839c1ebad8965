#include "shake_hands.hpp"

#include "base/failures.hpp"
#include "bootstrap.hpp"
#include "peer_gid.hpp"
#include "security/tls_channel.hpp"

#include <algorithm>
#include <array>
#include <exception>
#include <optional>
#include <string>

namespace cordma::detail {
namespace {

/// Asks the program about the peer. The request is also what it changed.
connection_request asked(const admission& admit, const connection_options& options,
                         connection_request request) {
  request.reply = options.private_data;
  request.lending = options.agent.lending;
  if (!admit) return request;
  try {
    admit(request);
  } catch (const std::exception& e) {
    request.refuse(e.what());
  } catch (...) {
    request.refuse("the program's admission threw what is no std::exception");
  }
  if (!request.refusal().empty()) throw_failure(errc::refused, "accept", request.refusal());
  return request;
}

template <std::size_t N>
task<> say(byte_channel& channel, std::array<std::byte, N> words) {
  co_await write_all(channel, words);
}

task<> accept_peer(byte_channel& channel, const handshake::hello& theirs) {
  return say(channel, handshake::encode(handshake::verdict::accepted(theirs.nonce)));
}

/// The first frames of both agents. Only the ends of this TLS connection can make these values,
/// over both hellos. They bind the queue pairs to who the peers are. Each is said in the clear, and
/// is good for these two queue pairs alone: whoever finds one later can do nothing with it.
struct proofs {
  agent_protocol::payload client;
  agent_protocol::payload server;
};

std::optional<proofs> proofs_of(const link& peer_link, const handshake::frame_bytes_t& client,
                                const handshake::frame_bytes_t& server) {
  if (peer_link.tls() == nullptr) return std::nullopt;
  std::array<std::byte, 2 * handshake::frame_bytes> hellos;
  std::ranges::copy(server, std::ranges::copy(client, hellos.begin()).out);
  return proofs{.client = peer_link.tls()->export_secret("EXPORTER-cordma-client", hellos),
                .server = peer_link.tls()->export_secret("EXPORTER-cordma-server", hellos)};
}

/// Ends when the peer has proved itself. `preposts`: the next word lets the peer send.
task<> proved(connection_state& state, bool preposts) {
  co_await state.proved();
  if (preposts) state.prepost();
}

}  // namespace

task<> end_if_stopped() {
  const environment env = co_await current_environment();
  if (env.stop.stop_requested()) throw cancelled{};
}

handshake::start make_start(const connection_options& options) {
  const auto* const used = options.credentials;
  const authentication mode = used == nullptr ? authentication::none : used->kind();
  return {.mode = std::uint8_t(mode), .nonce = handshake::random_nonce()};
}

void check_mode(const handshake::start& theirs, const connection_options& ours) {
  const auto name = [](std::uint8_t mode) {
    switch (authentication{mode}) {
      case authentication::none: return "no authentication";
      case authentication::psk: return "a pre-shared key";
      case authentication::certificate: return "certificates";
      default: return "another authentication";
    }
  };
  const std::uint8_t own = make_start(ours).mode;
  if (theirs.mode == own) return;
  throw_failure(errc::incompatible_peer, "handshake",
                detail_text("%s here, %s there: give both sides credentials of one kind, or none",
                            name(own), name(theirs.mode)));
}

void admit_plain(const admission& admit, connection_options& options, const socket_address& peer,
                 std::span<const std::byte> data) {
  connection_request shown{peer, {}};
  std::copy_n(data.begin(), std::min(data.size(), shown.private_data.size()),
              shown.private_data.begin());
  options.private_data = asked(admit, options, std::move(shown)).reply;
}

task<connection> agree_as_client(std::unique_ptr<connection_state>& state, link& peer_link,
                                 std::optional<handshake::nonce> of_start) {
  const handshake::frame_bytes_t hello = handshake::encode(state->local_hello);
  co_await peer_link.heard(write_all(peer_link.channel(), hello));
  const handshake::received_hello theirs =
      co_await peer_link.heard(bootstrap::read_hello(peer_link.channel()));
  const std::optional<proofs> bound = proofs_of(peer_link, hello, theirs.bytes);
  std::optional<failure> why;
  try {
    if (of_start && theirs.nonce != *of_start)
      throw_failure(errc::bad_handshake, "handshake", "the hello is not that of the start");
    co_await admit_peer_gid(*state, theirs);
    state->agree(theirs, handshake::side::client,
                 bound ? std::optional{bound->server} : std::nullopt);
    if (!bound) state->prepost();
  } catch (const error& e) {
    why = e.failure();
  }
  if (why) {
    co_await bootstrap::refuse(peer_link.channel(), *why);
    throw error{*why};
  }
  if (bound)
    state->agent->send_proof(bound->client);
  else
    state->open();
  co_await accept_peer(peer_link.channel(), theirs);
  co_await bootstrap::read_acceptance(peer_link.channel(), state->local_hello.nonce);
  const result<void> proof = co_await as_result(proved(*state, bound.has_value()));
  if (proof.is_cancelled()) throw cancelled{};
  if (proof.has_failure()) {
    co_await bootstrap::refuse(peer_link.channel(), proof.failure());
    throw error{proof.failure()};
  }
  state->open();
  // The listener may use what this side allows only from now on.
  if (bound) co_await accept_peer(peer_link.channel(), theirs);
  state->peer_identity = peer_link.peer_identity;
  state->watch_over(peer_link.take_channel());
  co_return connection{std::move(state)};
}

task<connection> agree_as_server(const handshake::start& theirs, const connection_options& options,
                                 link& peer_link, const admission& admit,
                                 callback<std::unique_ptr<connection_state>&()> state_for) {
  const handshake::received_hello hello =
      co_await peer_link.heard(bootstrap::read_hello(peer_link.channel()));
  if (hello.nonce != theirs.nonce)
    throw_failure(errc::bad_handshake, "handshake", "the hello is not that of the start");
  co_await end_if_stopped();
  connection_request shown{peer_link.peer, peer_link.peer_identity};
  shown.private_data = hello.private_data;
  const connection_request request = asked(admit, options, std::move(shown));
  std::unique_ptr<connection_state>& state = state_for();
  state->limit_lending(request.lending);
  state->local_hello.private_data = request.reply;
  const handshake::frame_bytes_t ours = handshake::encode(state->local_hello);
  const std::optional<proofs> bound = proofs_of(peer_link, hello.bytes, ours);
  co_await admit_peer_gid(*state, hello);
  // The queue pair is ready to receive before the client knows its address: the client may send as
  // soon as it has this side's hello.
  state->agree(hello, handshake::side::listener,
               bound ? std::optional{bound->client} : std::nullopt);
  co_await write_all(peer_link.channel(), ours);
  co_await bootstrap::read_acceptance(peer_link.channel(), state->local_hello.nonce);
  if (bound) state->agent->send_proof(bound->server);
  co_await proved(*state, true);
  state->open();
  co_await accept_peer(peer_link.channel(), hello);
  if (bound) co_await bootstrap::read_acceptance(peer_link.channel(), state->local_hello.nonce);
  state->peer_identity = peer_link.peer_identity;
  state->watch_over(peer_link.take_channel());
  co_return connection{std::move(state)};
}

task<connection> shake_hands_as_client(connection_resources resources, connection_options options,
                                       link& peer_link) {
  auto state =
      std::make_unique<connection_state>(resources, options, peer_link.local, peer_link.peer);
  const handshake::start start = make_start(options);
  state->local_hello.nonce = start.nonce;
  co_await say(peer_link.channel(), handshake::encode(start));
  co_await peer_link.secure(options.credentials, tls_role::client);
  co_return co_await agree_as_client(state, peer_link);
}

task<connection> shake_hands_as_server(connection_resources resources, connection_options options,
                                       link& peer_link, const admission& admit) {
  const handshake::start start = co_await bootstrap::read_start(peer_link.channel());
  check_mode(start, options);
  co_await peer_link.secure(options.credentials, tls_role::server);
  std::unique_ptr<connection_state> state;
  const auto make = [&]() -> auto& {
    state = std::make_unique<connection_state>(resources, options, peer_link.local, peer_link.peer);
    state->local_hello.nonce = handshake::random_nonce();
    return state;
  };
  co_return co_await agree_as_server(start, options, peer_link, admit, make);
}

}  // namespace cordma::detail
