#include "io/socket_calls.hpp"

#include "io/stream_channel.hpp"
#include "io/stream_socket.hpp"
#include "support/channel_pair.hpp"
#include "support/memory_host.hpp"

#include <cordma/coro/when_all.hpp>
#include <cordma/coro/with_timeout.hpp>

#include <catch2/catch.hpp>

#include <array>
#include <numeric>
#include <optional>
#include <string>

using namespace cordma;
using namespace std::chrono_literals;
using detail::socket_option;
using test::code_of;
using test::memory_network;

namespace {

/// Bytes of the longest frame of a handshake.
using frame = std::array<std::byte, 256>;

frame frame_from(int first) {
  frame made;
  for (std::size_t i = 0; i < made.size(); ++i) made[i] = std::byte(first + int(i));
  return made;
}

/// Two connected sockets, and their listener.
struct memory_pair {
  test::memory_host host;
  memory_network& network = host.network;
  executor exec{test::on_memory(host)};
  std::optional<stream_listener> listener{std::in_place, exec, socket_address::loopback(0)};
  std::optional<stream_channel> client;
  std::optional<stream_channel> server;

  void connect() {
    auto both = exec.run(
        when_all(stream_socket::connect(exec, listener->local_address()), listener->accept()));
    client.emplace(std::move(std::get<0>(both)));
    server.emplace(std::move(std::get<1>(both)));
  }
  /// Sends a frame each way, the second in answer to the first.
  void exchange() {
    const auto ask = [](byte_channel& c) -> task<frame> {
      frame answer;
      co_await write_all(c, frame_from(1));
      co_await read_exactly(c, answer);
      co_return answer;
    };
    const auto answer = [](byte_channel& c) -> task<frame> {
      frame question;
      co_await read_exactly(c, question);
      co_await write_all(c, frame_from(7));
      co_return question;
    };
    const auto [told, asked] = exec.run(when_all(ask(*client), answer(*server)));
    CHECK(told == frame_from(7));
    CHECK(asked == frame_from(1));
  }
};

}  // namespace

TEST_CASE("sockets of a reactor's own connect, exchange frames and close, without the kernel",
          "[io]") {
  memory_pair p;
  p.network.connects_later = GENERATE(false, true);
  p.connect();
  CHECK(p.client->socket().fd() >= memory_network::first_fd);
  CHECK(p.server->socket().fd() >= memory_network::first_fd);
  CHECK(p.client->socket().peer_address() == p.listener->local_address());
  CHECK(p.server->socket().peer_address() == p.client->socket().local_address());
  p.exchange();
  p.client->end_writing();
  std::array<std::byte, 1> more;
  CHECK(p.exec.run(read_some(*p.server, more)) == 0);
  CHECK(p.network.open_sockets() == 3);
  p.client.reset();
  p.server.reset();
  p.listener.reset();
  CHECK(p.network.open_sockets() == 0);
}

TEST_CASE("options of a socket go to the calls of its reactor", "[io]") {
  memory_pair p;
  p.connect();
  CHECK(p.network.option(p.listener->fd(), socket_option::reuse_address) == 1);
  p.client->keep_alive(1500ms, 3);
  const int fd = p.client->socket().fd();
  CHECK(p.network.option(fd, socket_option::no_delay) == 1);
  CHECK(p.network.option(fd, socket_option::keep_alive) == 1);
  CHECK(p.network.option(fd, socket_option::probe_after_s) == 2);
  CHECK(p.network.option(fd, socket_option::probe_interval_s) == 2);
  CHECK(p.network.option(fd, socket_option::probes_max) == 3);
}

TEST_CASE("frames arrive whole over sockets that take and give a few bytes at a time", "[io]") {
  memory_pair p;
  p.network.unread_max = 7;
  p.network.piece_max = GENERATE(1u, 3u, 100u);
  p.connect();
  p.exchange();
}

TEST_CASE("calls on a socket that a signal interrupts are made again", "[io]") {
  memory_pair p;
  p.network.interrupts = true;
  p.connect();
  p.exchange();
}

TEST_CASE("a reset of a socket that is not the kernel's breaks its channel", "[io]") {
  memory_pair p;
  p.connect();
  p.exec.post([&] { p.network.reset(p.client->socket().fd()); });
  frame never;
  CHECK(code_of(p.exec, read_exactly(*p.client, never)) == std::errc::connection_reset);
  CHECK(code_of(p.exec, write_all(*p.client, never)) == std::errc::broken_pipe);
}

TEST_CASE("connecting to nobody's address is refused, at once or later", "[io]") {
  memory_pair p;
  p.network.connects_later = GENERATE(false, true);
  const socket_address nobody = socket_address::loopback(1);
  const auto refused = p.exec.run(as_result(stream_socket::connect(p.exec, nobody)));
  REQUIRE(refused.has_failure());
  CHECK(refused.failure().code == std::errc::connection_refused);
  CHECK_THAT(refused.failure().to_string(), Catch::Contains(nobody.to_string()));
  CHECK_THROWS_WITH((stream_listener{p.exec, p.listener->local_address()}),
                    Catch::Contains("port is taken"));
  CHECK(p.network.open_sockets() == 1);
}

TEST_CASE("a host out of sockets refuses to make one, and its listener stays good", "[io]") {
  memory_pair p;
  const stream_socket client =
      p.exec.run(stream_socket::connect(p.exec, p.listener->local_address()));
  p.network.sockets_max = 2;
  const auto accepted = p.exec.run(as_result(p.listener->accept()));
  const auto connected =
      p.exec.run(as_result(stream_socket::connect(p.exec, p.listener->local_address())));
  for (const auto* outcome : {&accepted, &connected}) {
    REQUIRE(outcome->has_failure());
    CHECK(outcome->failure().code == std::errc::too_many_files_open);
    CHECK_THAT(outcome->failure().to_string(), Catch::Contains("ulimit -n"));
  }
  p.network.sockets_max = 3;
  CHECK(p.exec.run(p.listener->accept()).peer_address() == client.local_address());
}

TEST_CASE("a descriptor that the program hands in is one of the executor's host", "[io]") {
  memory_pair p;
  p.connect();
  {
    const int fd = p.network.make(AF_INET);
    const stream_socket adopted{p.exec, unique_fd{fd}};
    CHECK(adopted.fd() == fd);
    CHECK(p.network.open_sockets() == 4);
  }
  CHECK(p.network.open_sockets() == 3);
  CHECK_THROWS_WITH((stream_socket{p.exec, unique_fd{memory_network::first_fd + 1000}}),
                    Catch::Contains("fcntl"));
}

TEST_CASE("a wait on a socket that is not the kernel's is stopped, and the socket works", "[io]") {
  memory_pair p;
  CHECK(code_of(p.exec, with_timeout(p.listener->accept(), 1ms)) == errc::timed_out);
  p.connect();
  frame never;
  CHECK(code_of(p.exec, with_timeout(read_exactly(*p.server, never), 1ms)) == errc::timed_out);
  p.exchange();
}
