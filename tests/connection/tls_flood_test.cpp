// Clients that fall silent in the middle of TLS, in all places for handshakes.
#include "security/tls_channel.hpp"

#include "support/connected_pair.hpp"
#include "support/raw_peer.hpp"
#include "support/some_hello.hpp"

#include <cordma/coro/when_all.hpp>
#include <cordma/coro/when_any.hpp>
#include <cordma/security/credentials.hpp>

#include <catch2/catch.hpp>

#include <sys/socket.h>

#include <array>
#include <string>
#include <vector>

using namespace cordma;
using namespace std::chrono_literals;

namespace {

/// What a client of TLS says first.
std::vector<std::byte> first_record(runtime& rt, const credentials& key) {
  std::array<int, 2> fds{};
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds.data()) == 0);
  tls_channel tls{
      key, std::make_unique<stream_channel>(stream_socket{rt.executor(), unique_fd{fds[0]}})};
  test::raw_peer wire{stream_socket{rt.executor(), unique_fd{fds[1]}}};
  std::vector<std::byte> said(4096);
  const auto ended = rt.run(when_any(read_some(wire, said), tls.shake_hands(tls_role::client, "")));
  said.resize(std::get<0>(ended));
  return said;
}

/// Says the start and the first record of TLS, and hears that the listener answers.
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
  constexpr unsigned places = 3;
  constexpr std::size_t flood = 8;
  constexpr auto grace = 1s;
  manual_clock clock;
  runtime rt{test::on_test_device(test::by_hand(clock))};
  const credentials key = credentials::psk({"db-1", std::vector(32, std::byte{7})});
  listener door = rt.listen({}, {.handshakes_max = places, .handshake_timeout = 10 * grace},
                            {.credentials = &key});
  const std::vector<std::byte> record = first_record(rt, key);
  std::vector<test::raw_peer> silent;
  for (std::size_t n = 0; n < flood; ++n) {
    silent.push_back(rt.run(fall_silent(rt, door.local_endpoint().port, record)));
    clock.advance(grace);  // Whoever is there may be dropped now.
  }
  auto [client, server] =
      rt.run(when_all(rt.connect(door.local_endpoint(), {.credentials = &key}), door.accept()));
  CHECK(client.is_open());
  CHECK(server.peer_identity().name == "db-1");
  CHECK(door.counters().dropped == flood + 1 - places);
  CHECK(door.counters().rejected == 0);
  CHECK_THAT(rt.run(rest_of(silent.front())),
             Catch::Contains("dropped for a newer client: handshakes_max is 3"));
}
