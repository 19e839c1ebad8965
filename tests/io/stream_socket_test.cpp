#include "io/stream_socket.hpp"

#include "support/channel_pair.hpp"
#include "support/kernel_counts.hpp"
#include "support/until.hpp"

#include <cordma/coro/when_all.hpp>
#include <cordma/coro/with_timeout.hpp>
#include <cordma/io/executor.hpp>

#include <catch2/catch.hpp>

#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <random>
#include <string>
#include <string_view>
#include <vector>

using namespace cordma;
using namespace std::chrono_literals;
using test::code_of;
using test::fill;

namespace {

struct ends {
  stream_socket client, server;
};

task<ends> connected(executor& exec) {
  stream_listener listener{exec, socket_address::loopback(0)};
  auto both =
      co_await when_all(stream_socket::connect(exec, listener.local_address()), listener.accept());
  co_return ends{std::move(std::get<0>(both)), std::move(std::get<1>(both))};
}

/// Closing the socket then sends a RST.
void make_abortive(stream_socket& s) {
  const linger now{.l_onoff = 1, .l_linger = 0};
  REQUIRE(::setsockopt(s.fd(), SOL_SOCKET, SO_LINGER, &now, sizeof now) == 0);
}

/// Has the kernel send a few bytes, which it always takes.
void say(const stream_socket& s) { REQUIRE(::send(s.fd(), "abc", 3, MSG_NOSIGNAL) == 3); }

}  // namespace

TEST_CASE("both ends know each other's address", "[io]") {
  executor exec;
  stream_listener listener{exec, socket_address::resolve("::1", 0).front()};
  CHECK(listener.local_address().port() != 0);
  auto both =
      exec.run(when_all(stream_socket::connect(exec, listener.local_address()), listener.accept()));
  auto& [client, server] = both;
  CHECK(client.peer_address() == listener.local_address());
  CHECK(server.peer_address() == client.local_address());
}

TEST_CASE("connecting where nobody listens is refused, and says where", "[io]") {
  executor exec;
  socket_address nobody;
  {
    stream_listener gone{exec, socket_address::loopback(0)};
    nobody = gone.local_address();
  }
  const auto outcome = exec.run(as_result(stream_socket::connect(exec, nobody)));
  REQUIRE(outcome.has_failure());
  CHECK(outcome.failure().code == std::errc::connection_refused);
  CHECK_THAT(outcome.failure().to_string(),
             Catch::Contains(nobody.to_string()) && Catch::Contains("is the server up"));
}

TEST_CASE("a port in use is named, with the way out", "[io]") {
  executor exec;
  stream_listener first{exec, socket_address::loopback(0)};
  try {
    stream_listener second{exec, first.local_address()};
    FAIL("bound twice");
  } catch (const error& e) {
    CHECK(e.code() == std::errc::address_in_use);
    CHECK_THAT(e.what(), Catch::Contains(first.local_address().to_string()) &&
                             Catch::Contains("port is taken"));
  }
  CHECK_THROWS_WITH((stream_listener{exec, socket_address::resolve("192.0.2.1", 0).front()}),
                    Catch::Contains("not an address of this host"));
}

TEST_CASE("a port is free again as soon as its listener is destroyed", "[io]") {
  executor exec;
  socket_address where = socket_address::loopback(0);
  for (int i = 0; i < 20; ++i) {
    stream_listener listener{exec, where};
    where = listener.local_address();
    // Stopped while it waits: the kernel must not keep the socket for that.
    CHECK(code_of(exec, with_timeout(listener.accept(), 100us)) == errc::timed_out);
  }
}

TEST_CASE("a closed listener listens no more, whoever else holds its socket", "[io]") {
  executor exec;
  stream_listener listener{exec, socket_address::loopback(0)};
  const socket_address where = listener.local_address();
  const unique_fd of_a_child{::dup(listener.fd())};
  listener.close();
  CHECK(code_of(exec, stream_socket::connect(exec, where)) == std::errc::connection_refused);
  CHECK_NOTHROW(stream_listener{exec, where});
  listener.close();
}

TEST_CASE("the address of a peer that has reset the connection is refused for that reason",
          "[io]") {
  executor exec;
  auto [client, server] = exec.run(connected(exec));
  make_abortive(server);
  {
    const stream_socket dropped = std::move(server);
  }
  const auto asked = [&client = client]() -> task<socket_address> {
    co_return client.peer_address();
  };
  CHECK(code_of(exec, asked()) == std::errc::connection_reset);
  stream_socket never{exec, unique_fd{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)}};
  const auto nobody = [&]() -> task<socket_address> { co_return never.peer_address(); };
  CHECK(code_of(exec, nobody()) == std::errc::not_connected);
}

TEST_CASE("hang_up ends with the peer's FIN or RST, and not with its bytes", "[io][C8]") {
  executor exec;
  const bool abortive = GENERATE(false, true);
  auto [client, server] = exec.run(connected(exec));
  say(client);
  CHECK(code_of(exec, with_timeout(server.hang_up(), 1ms)) == errc::timed_out);
  if (abortive) make_abortive(client);
  exec.post([&gone = client] { const stream_socket dropped = std::move(gone); });
  exec.run(server.hang_up());
  exec.run(server.hang_up());  // A peer that has hung up stays so.
}

TEST_CASE("dropping a stream after a wait on it was abandoned sends FIN", "[io]") {
  executor exec;
  auto [client, server] = exec.run(connected(exec));
  CHECK(exec.run(when_any(client.hang_up(), exec.sleep_for(100us))).index() == 1);
  {
    const stream_socket dropped = std::move(client);
  }
  exec.run(server.hang_up());
}

TEST_CASE("accept and connect each stop in their middle", "[io]") {
  executor exec;
  {
    stream_listener listener{exec, socket_address::loopback(0)};
    CHECK(code_of(exec, with_timeout(listener.accept(), 1ms)) == errc::timed_out);
    // The listener still accepts.
    exec.run(when_all(stream_socket::connect(exec, listener.local_address()), listener.accept()));
  }

  // A backlog that is full leaves the next connect without an answer.
  stream_listener full{exec, socket_address::loopback(0), 0};
  std::vector<stream_socket> taken;
  std::error_code last;
  for (int i = 0; i < 8 && !last; ++i) {
    auto outcome =
        exec.run(as_result(with_timeout(stream_socket::connect(exec, full.local_address()), 5ms)));
    if (outcome.has_failure()) {
      last = outcome.failure().code;
    } else {
      taken.push_back(std::move(*outcome));
    }
  }
  CHECK(last == errc::timed_out);
}

TEST_CASE("without a free descriptor, accept and connect are errors, and the listener stays good",
          "[io]") {
  executor exec;
  stream_listener listener{exec, socket_address::loopback(0)};
  const stream_socket client = exec.run(stream_socket::connect(exec, listener.local_address()));
  rlimit old{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &old) == 0);
  const rlimit none{.rlim_cur = 0, .rlim_max = old.rlim_max};
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &none) == 0);
  const auto accepted = exec.run(as_result(listener.accept()));
  const auto connected =
      exec.run(as_result(stream_socket::connect(exec, listener.local_address())));
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &old) == 0);
  for (const auto* outcome : {&accepted, &connected}) {
    REQUIRE(outcome->has_failure());
    CHECK(outcome->failure().code == std::errc::too_many_files_open);
    CHECK_THAT(outcome->failure().to_string(), Catch::Contains("ulimit -n"));
  }
  const stream_socket server = exec.run(listener.accept());
  CHECK(server.peer_address() == client.local_address());
}

TEST_CASE("frames that wait on sockets may be destroyed at any point", "[io][C1]") {
  executor exec;
  const std::uint64_t before = test::counts_of_process().descriptors;
  std::mt19937 random{11};
  for (int round = 0; round < 200; ++round) {
    stream_listener listener{exec, socket_address::loopback(0)};
    ends both = exec.run(connected(exec));
    stream_channel client{std::move(both.client)};
    stream_channel server{std::move(both.server)};
    std::array<std::byte, 32> into;
    detail::end_flag nobody_asks;
    const environment env{&exec, {}};
    const auto accept = [](stream_listener& l) -> task<> { co_await l.accept(); };
    const auto read = [](byte_channel& s, std::span<std::byte> b) -> task<> {
      for (;;) co_await read_exactly(s, b);
    };
    task<> a = accept(listener), b = read(server, into), c = fill(server);
    task<stream_socket> d = stream_socket::connect(exec, listener.local_address());
    a.start(nobody_asks, env);
    b.start(nobody_asks, env);
    c.start(nobody_asks, env);
    d.start(nobody_asks, env);
    if (random() % 2 == 0) say(client.socket());
    if (random() % 2 == 0) exec.run(exec.sleep_for(std::chrono::microseconds{random() % 50}));
  }
  exec.run(test::until(exec, [&] { return test::counts_of_process().descriptors <= before; }));
  CHECK(test::counts_of_process().descriptors == before);
}

TEST_CASE("a socket that is given away goes on at another executor", "[io]") {
  executor here;
  executor there;
  auto [client, server] = here.run(connected(here));
  stream_channel moved{stream_socket{there, std::move(server).release()}};
  say(client);
  std::array<char, 3> got{};
  there.run(read_exactly(moved, std::as_writable_bytes(std::span{got})));
  CHECK(std::string_view{got.data(), got.size()} == "abc");
}
