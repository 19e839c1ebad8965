#include "shake_hands.hpp"

#include "base/failures.hpp"
#include "bootstrap.hpp"
#include "connection_state.hpp"

#include <array>
#include <exception>
#include <optional>
#include <string>

namespace cordma::detail {
namespace {

/// Asks the program. \errors errc::refused: the program's reason.
void admit_peer(const admission& admit, connection_options& options, const socket_address& peer,
                const handshake::hello& remote) {
  if (!admit) return;
  connection_request request{peer};
  request.private_data = remote.private_data;
  request.reply = options.private_data;
  request.lending = options.agent.lending;
  try {
    admit(request);
  } catch (const std::exception& e) {
    request.refuse(e.what());
  }
  if (!request.refusal().empty()) throw_failure(errc::refused, "accept", request.refusal());
  options.private_data = request.reply;
  options.agent.lending = request.lending;
}

/// Begins with a start, so that both need one packet.
task<> greet(byte_channel& channel, const handshake::start& start, const handshake::hello& hello) {
  std::array<std::byte, handshake::start_bytes + handshake::frame_bytes> words;
  const auto rest = std::ranges::copy(handshake::encode(start), words.begin()).out;
  std::ranges::copy(handshake::encode(hello), rest);
  co_await write_all(channel, words);
}

task<> accept_peer(byte_channel& channel) {
  const handshake::frame_bytes_t words = handshake::encode(handshake::verdict::accepted());
  co_await write_all(channel, words);
}

}  // namespace

task<connection> shake_hands_as_client(connection_resources resources, connection_options options,
                                       link& way) {
  auto state = std::make_unique<connection_state>(resources, options, way.local, way.peer);
  const handshake::start start{.nonce = handshake::random_nonce()};
  state->local_hello.nonce = start.nonce;
  co_await greet(*way.channel, start, state->local_hello);
  const handshake::hello remote = co_await bootstrap::read_hello(*way.channel);
  std::optional<failure> why;
  try {
    state->agree(remote);
  } catch (const error& e) {
    why = e.failure();
  }
  if (why) {
    co_await bootstrap::refuse(*way.channel, *why);
    throw error{*why};
  }
  co_await accept_peer(*way.channel);
  co_await bootstrap::read_acceptance(*way.channel);
  state->watch_over(std::move(way.channel));
  co_return connection{std::move(state)};
}

task<connection> shake_hands_as_server(connection_resources resources, connection_options options,
                                       link& way, const admission& admit) {
  const handshake::start start = co_await bootstrap::read_start(*way.channel);
  if (start.mode != 0) {
    throw_failure(errc::incompatible_peer, "handshake",
                  detail_text("the peer wants mode %u of authentication, this side none",
                              unsigned{start.mode}));
  }
  const handshake::hello remote = co_await bootstrap::read_hello(*way.channel);
  if (remote.nonce != start.nonce)
    throw_failure(errc::bad_handshake, "handshake", "the hello is not that of the start");
  admit_peer(admit, options, way.peer, remote);
  auto state = std::make_unique<connection_state>(resources, options, way.local, way.peer);
  state->local_hello.nonce = handshake::random_nonce();
  // The queue pair is ready to receive before the client knows its address: the client may send as
  // soon as it has this side's hello.
  state->agree(remote);
  const handshake::frame_bytes_t hello = handshake::encode(state->local_hello);
  co_await write_all(*way.channel, hello);
  co_await bootstrap::read_acceptance(*way.channel);
  co_await accept_peer(*way.channel);
  state->watch_over(std::move(way.channel));
  co_return connection{std::move(state)};
}

}  // namespace cordma::detail
