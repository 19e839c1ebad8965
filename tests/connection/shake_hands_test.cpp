#include "connection/shake_hands.hpp"

#include "support/connected_pair.hpp"
#include "support/leaks.hpp"
#include "support/raw_peer.hpp"
#include "support/some_hello.hpp"
#include "support/temporary_folder.hpp"

#include <cordma/coro/when_all.hpp>

#include <catch2/catch.hpp>

#include <sys/socket.h>
#include <unistd.h>

#include <array>

using namespace cordma;

TEST_CASE("a stream of the program's own becomes a connection, on both sides",
          "[connection][device]") {
  runtime rt{test::on_test_device()};
  std::array<int, 2> fds{};
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds.data()) == 0);
  auto [client, server] =
      rt.run(when_all(rt.connect(unique_fd{fds[0]}), rt.accept(unique_fd{fds[1]})));
  local_mr memory = rt.memory().allocate_zeroed(16);
  const auto [m, sent] =
      rt.run(when_all(server.recv(memory.slice(0, 8)), client.send(memory.slice(8, 8))));
  CHECK(m.size_bytes == sent);
  CHECK(client.peer().to_string() == "unix:");
  rt.run(when_all(client.close(), server.close()));
  CHECK(server.was_closed_by_peer());
}

TEST_CASE("a descriptor that is no socket is an error that says so", "[connection][device]") {
  runtime rt{test::on_test_device()};
  std::array<int, 2> fds{};
  REQUIRE(::pipe(fds.data()) == 0);
  const unique_fd other_end{fds[1]};
  CHECK_THROWS_WITH(rt.run(rt.connect(unique_fd{fds[0]})), Catch::Contains("non-socket"));
}

TEST_CASE("a listener on a Unix socket serves, and says where it is", "[connection][device]") {
  const test::temporary_folder folder;
  runtime rt{test::on_test_device()};
  const endpoint where{"unix:" + (folder.path / "socket").string()};
  listener door = rt.listen(where);
  CHECK(door.local_endpoint() == where);
  auto [client, server] = rt.run(when_all(rt.connect(where), door.accept()));
  CHECK(client.is_open());
  CHECK(client.peer().to_string() == where.to_string());
  rt.run(when_all(client.close(), server.close()));
  CHECK_FALSE(client.is_open());
}

TEST_CASE("a client whose start does not fit is told why, and the next is served",
          "[connection][device][N2]") {
  test::connected_pair p;
  handshake::start start{.nonce = handshake::random_nonce()};
  handshake::hello hello = p.client.local_hello();
  hello.nonce = start.nonce;
  const char* says = "";
  SECTION("another mode of authentication") {
    start.mode = 2;
    says = "mode 2 of authentication, this side none";
  }
  SECTION("a hello of another start") {
    hello.nonce = handshake::random_nonce();
    says = "the hello is not that of the start";
  }
  const auto speak = [&]() -> task<failure> {
    test::raw_peer peer = co_await stream_socket::connect(
        p.rt.executor(), socket_address::loopback(p.door.local_endpoint().port));
    co_await test::say(peer, handshake::encode(start));
    co_await test::say(peer, handshake::encode(hello));
    const auto heard = co_await as_result(bootstrap::read_hello(peer));
    co_return heard.has_failure() ? heard.failure() : failure{};
  };
  CHECK_THAT(p.rt.run(speak()).to_string(), Catch::Contains(says));
  p.rt.run(p.open({}));
  CHECK(p.client.is_open());
}
