// The socket of the bootstrap, for the rest of the connection's life.

#include "request/queue_pair.hpp"
#include "support/connected_pair.hpp"
#include "support/connection_socket.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <cordma/coro/with_timeout.hpp>
#include <catch2/catch.hpp>

using namespace cordma;
using namespace std::chrono_literals;
using test::connected_pair;

namespace {

int option_of(int fd, int level, int name) {
  int value = -1;
  socklen_t size_bytes = sizeof value;
  REQUIRE(::getsockopt(fd, level, name, &value, &size_bytes) == 0);
  return value;
}

}  // namespace

TEST_CASE("a peer that talks on after the handshake loses its connection", "[connection][device]") {
  connected_pair p;
  REQUIRE(::send(test::socket_of(p.client), "more", 4, MSG_NOSIGNAL) == 4);
  p.rt.run(with_timeout(p.server.qp().failed_event().wait(), 10s));
  const std::optional<failure> why = p.server.why_lost();
  REQUIRE(why);
  CHECK(why->code == make_error_code(errc::bad_handshake));
  CHECK(std::string_view{why->call} == "recv after the handshake");
}

TEST_CASE("the kernel asks after a peer that is silent for long", "[connection][device][C8]") {
  connected_pair p;
  for (const connection* side : {&p.client, &p.server}) {
    const int fd = test::socket_of(*side);
    CHECK(option_of(fd, SOL_SOCKET, SO_KEEPALIVE) == 1);
    CHECK(option_of(fd, IPPROTO_TCP, TCP_KEEPIDLE) == 1);
    CHECK(option_of(fd, IPPROTO_TCP, TCP_KEEPINTVL) == 1);
    CHECK(option_of(fd, IPPROTO_TCP, TCP_KEEPCNT) == 3);
  }
}
