// Clients that fall silent in the middle of TLS, in all places for handshakes.
#include "first_record.hpp"

#include "support/connected_pair.hpp"
#include "support/raw_peer.hpp"
#include "support/some_hello.hpp"

#include <cordma/coro/when_all.hpp>
#include <cordma/security/credentials.hpp>

#include <catch2/catch.hpp>

#include <array>
#include <string>
#include <vector>

using namespace cordma;
using namespace std::chrono_literals;

namespace {

/// Sends the start and the first record of TLS, and reads the listener's answer.
task<test::raw_peer> fall_silent(runtime& rt, std::uint16_t port,
                                 const std::vector<std::byte>& record) {
  test::raw_peer peer =
      co_await stream_socket::connect(rt.executor(), socket_address::loopback(port));
  const handshake::start start{.mode = std::uint8_t(authentication::psk),
                               .nonce = handshake::random_nonce()};
  co_await test::say(peer, handshake::encode(start));
  co_await write_all(peer, record);
  std::array<std::byte, 1> answer{};
  co_await read_exactly(peer, answer);
  CHECK(answer[0] == std::byte{22});  // A record of TLS's handshake.
  co_return peer;
}

/// All that is left to read, as text.
task<std::string> rest_of(byte_channel& channel) {
  std::string text;
  std::array<char, 4096> some{};
  for (;;) {
    const std::size_t n = co_await read_some(channel, std::as_writable_bytes(std::span{some}));
    if (n == 0) co_return text;
    text.append(some.data(), n);
  }
}

}  // namespace

TEST_CASE("a flood of clients that fall silent within TLS keeps no real client out",
          "[connection][device][floods]") {
  constexpr unsigned permits = 3;
  constexpr std::size_t flood = 8;
  constexpr auto grace = 1s;
  manual_clock clock;
  runtime rt{test::on_test_device(test::by_hand(clock))};
  const credentials key = credentials::psk({"db-1", std::vector(32, std::byte{7})});
  listener acceptor = rt.listen({}, {.handshakes_max = permits, .handshake_timeout = 10 * grace},
                                {.credentials = &key});
  const std::vector<std::byte> record = test::first_record(rt, key);
  std::vector<test::raw_peer> silent;
  for (std::size_t n = 0; n < flood; ++n) {
    silent.push_back(rt.run(fall_silent(rt, acceptor.local_endpoint().port, record)));
    clock.advance(grace);  // The silent clients may be dropped now.
  }
  auto [client, server] = rt.run(
      when_all(rt.connect(acceptor.local_endpoint(), {.credentials = &key}), acceptor.accept()));
  CHECK(client.is_open());
  CHECK(server.peer_identity().name == "db-1");
  CHECK(acceptor.counters().dropped == flood + 1 - permits);
  CHECK(acceptor.counters().rejected == 0);
  CHECK_THAT(rt.run(rest_of(silent.front())),
             Catch::Contains("dropped for a newer client: handshakes_max is 3"));
}
