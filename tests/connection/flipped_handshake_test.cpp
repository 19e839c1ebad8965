// Clients whose greeting has bits changed, or was recorded from another handshake: each is refused
// or harmless, nothing is left of it, and the next real client is served.

#include "connection/cm_door.hpp"

#include "cm/rig.hpp"
#include "support/connected_pair.hpp"
#include "support/leaks.hpp"
#include "support/raw_peer.hpp"
#include "support/soak.hpp"
#include "support/some_hello.hpp"

#include <cordma/coro/when_all.hpp>

#include <catch2/catch.hpp>

#include <sys/socket.h>

#include <array>
#include <random>
#include <stdexcept>
#include <utility>
#include <vector>

using namespace cordma;
using namespace std::chrono_literals;

namespace {

using greeting = std::array<std::byte, handshake::start_bytes + handshake::frame_bytes>;

/// A right greeting, recorded from a client of `p`.
greeting recorded(const test::connected_pair& p) {
  handshake::hello hello = p.client.local_hello();
  greeting bytes;
  const auto rest =
      std::ranges::copy(handshake::encode(handshake::start{.nonce = hello.nonce}), bytes.begin());
  std::ranges::copy(handshake::encode(hello), rest.out);
  return bytes;
}

template <class Bytes>
void flip(Bytes& bytes, std::mt19937_64& random) {
  for (std::uint64_t n = random() % 3; n > 0; --n)
    bytes[random() % bytes.size()] ^= std::byte{1} << random() % 8;
}

bool is_of_the_peer(const result<connection>& made) {
  if (!made.has_failure()) return false;
  const auto code = made.failure().code;
  return code == errc::bad_handshake || code == errc::incompatible_peer || code == errc::refused ||
         code == errc::disconnected || code.category() == std::system_category();
}

/// Returns how many of `count` handshakes over a stream ended otherwise than by the peer's fault.
std::uint64_t over_streams(test::connected_pair& p, std::uint64_t count, std::uint64_t seed) {
  std::mt19937_64 random{seed};
  const greeting right = recorded(p);
  std::uint64_t wrong = 0;
  const auto one = [&]() -> task<> {
    std::array<int, 2> fds{};
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds.data()) != 0)
      throw std::runtime_error{"socketpair"};
    greeting bytes = right;
    flip(bytes, random);
    const auto speak = [&]() -> task<> {
      test::raw_peer peer{stream_socket{p.rt.executor(), unique_fd{fds[0]}}};
      static_cast<void>(co_await as_result(test::say(peer, bytes)));
      std::array<std::byte, 1> answer{};
      // Whatever it is told, it goes: nobody can replay what an acceptance would need.
      static_cast<void>(co_await as_result(read_some(peer, answer)));
    };
    auto [said, made] = co_await when_all(speak(), as_result(p.rt.accept(unique_fd{fds[1]})));
    wrong += is_of_the_peer(made) ? 0 : 1;
  };
  const auto all = [&]() -> task<> {
    for (std::uint64_t n = 0; n < count; ++n) co_await one();
  };
  p.rt.run(all());
  return wrong;
}

/// Returns how many of `count` requests of rdma_cm with a changed start were taken all the same.
std::uint64_t over_rdma_cm(test::connected_pair& p, std::uint64_t count, std::uint64_t seed) {
  std::mt19937_64 random{seed};
  socket_address where =
      cm::test::device_address(p.rt.context(), p.rt.context().active_port().number);
  connection_options options;
  options.insecure = true;
  endpoint at = detail::endpoint_of(where);
  at.way = endpoint::bootstrap::rdma_cm;
  listener door = p.rt.listen(at, {}, options);
  where.set_port(door.local_endpoint().port);
  cm::event_channel events{p.rt.executor()};
  const auto all = [&]() -> task<> {
    for (std::uint64_t n = 0; n < count; ++n) {
      cm::id client{events};
      co_await client.resolve(where);
      auto start = handshake::encode(handshake::start{.nonce = handshake::random_nonce()});
      start[random() % 10] ^= std::byte{1} << random() % 8;  // Not the nonce, nor what is reserved.
      static_cast<void>(co_await as_result(client.connect(0x123, start, cm::parameters{})));
    }
  };
  p.rt.run(all());
  // A minor version may differ: such a client goes without its queue pair.
  auto [client, server] =
      p.rt.run(when_all(p.rt.connect(door.local_endpoint(), options), door.accept()));
  CHECK(client.is_open());
  return door.counters().completed - 1;
}

void check_flips(std::uint64_t streams, std::uint64_t requests, std::uint64_t seed) {
  test::connected_pair p;
  CHECK(over_streams(p, 1, seed) == 0);
  CHECK(over_rdma_cm(p, 1, seed) == 0);
  p.rt.run(current_environment());
  const std::string before = test::holdings();
  CHECK(over_streams(p, streams, seed) == 0);
  CHECK(over_rdma_cm(p, requests, seed) == 0);
  CHECK(test::settled_holdings(p.rt.executor(), before) == before);
  p.rt.run(p.open({}));
  CHECK(p.client.is_open());
}

}  // namespace

TEST_CASE("changed and replayed greetings are refused, and nothing is left of them",
          "[connection][device][rdma_cm][N2]") {
  check_flips(500, 50, 1);
}

TEST_CASE("a million changed and replayed greetings are refused",
          "[.soak-greetings][device][rdma_cm][N2]") {
  check_flips(test::soak::count(1'000'000), test::soak::count(1'000'000), test::soak::seed());
}
