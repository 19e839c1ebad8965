#include <cordma/detail/io/stream_socket.hpp>

#include "support/kernel_counts.hpp"
#include "support/temporary_folder.hpp"
#include "support/until.hpp"

#include <cordma/coro/when_all.hpp>
#include <cordma/coro/when_any.hpp>
#include <cordma/coro/with_timeout.hpp>
#include <cordma/io/executor.hpp>

#include <catch2/catch.hpp>

#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <numeric>
#include <random>

using namespace cordma;
using namespace std::chrono_literals;

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

std::vector<std::byte> pattern(std::size_t size_bytes) {
  std::vector<std::byte> bytes(size_bytes);
  for (std::size_t i = 0; i < size_bytes; ++i) bytes[i] = std::byte(i * 31 + i / 251);
  return bytes;
}

/// Closing the socket then sends a RST.
void make_abortive(stream_socket& s) {
  const linger now{.l_onoff = 1, .l_linger = 0};
  REQUIRE(::setsockopt(s.fd(), SOL_SOCKET, SO_LINGER, &now, sizeof now) == 0);
}

/// Writes until the kernel takes no more.
task<> fill(stream_socket& s) {
  const auto bytes = pattern(1 << 20);
  for (;;) co_await s.write_all(bytes);
}

template <class Op>
std::error_code code_of(executor& exec, Op&& op) {
  const auto outcome = exec.run(as_result(std::forward<Op>(op)));
  return outcome.has_failure() ? outcome.failure().code : std::error_code{};
}

}  // namespace

TEST_CASE("bytes written at one end come back from the other as they were", "[io]") {
  executor exec;
  auto [client, server] = exec.run(connected(exec));
  const auto sent = pattern(3'000'000);
  std::vector<std::byte> received(sent.size());
  const auto echo = [](stream_socket& s) -> task<> {
    std::array<std::byte, 70'000> buffer;
    while (true) {
      const std::size_t n = co_await s.read_some(buffer);
      if (n == 0) break;
      co_await s.write_all(std::span{buffer}.first(n));
    }
    s.shut_down_writing();
  };
  const auto write = [](stream_socket& s, std::span<const std::byte> bytes) -> task<> {
    co_await s.write_all(bytes);
    s.shut_down_writing();
  };
  exec.run(when_all(echo(server), write(client, sent), client.read_exactly(received)));
  CHECK(received == sent);
  CHECK(exec.run(client.read_some(received)) == 0);
}

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

TEST_CASE("a stream that ends is 0 bytes to read_some, and an error to read_exactly", "[io]") {
  executor exec;
  auto [client, server] = exec.run(connected(exec));
  const auto bytes = pattern(3);
  exec.run(client.write_all(bytes));
  client.shut_down_writing();
  std::array<std::byte, 8> into;
  const auto outcome = exec.run(as_result(server.read_exactly(into)));
  REQUIRE(outcome.has_failure());
  CHECK(outcome.failure().code == errc::disconnected);
  CHECK_THAT(outcome.failure().to_string(), Catch::Contains("after 3 of 8 bytes"));
  CHECK(exec.run(server.read_some(into)) == 0);
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

TEST_CASE("a reset by the peer is an error to who reads and who writes", "[io]") {
  executor exec;
  auto [client, server] = exec.run(connected(exec));
  make_abortive(client);
  std::array<std::byte, 8> into;
  const auto drop = [](executor& e, stream_socket& s) -> task<> {
    co_await e.sleep_for(1ms);
    const stream_socket dropped = std::move(s);
  };
  const auto read = [](stream_socket& s, std::span<std::byte> b, std::error_code& seen) -> task<> {
    const auto outcome = co_await as_result(s.read_some(b));
    if (outcome.has_failure()) seen = outcome.failure().code;
  };
  std::error_code seen;
  exec.run(when_all(read(server, into, seen), drop(exec, client)));
  CHECK(seen == std::errc::connection_reset);
  CHECK(code_of(exec, server.write_all(into)) == std::errc::broken_pipe);
}

TEST_CASE("hang_up ends with the peer's FIN or RST, and not with its bytes", "[io][C8]") {
  executor exec;
  const bool abortive = GENERATE(false, true);
  auto [client, server] = exec.run(connected(exec));
  exec.run(client.write_all(pattern(100)));
  CHECK(code_of(exec, with_timeout(server.hang_up(), 1ms)) == errc::timed_out);
  if (abortive) make_abortive(client);
  exec.post([&gone = client] { const stream_socket dropped = std::move(gone); });
  exec.run(server.hang_up());
  exec.run(server.hang_up());  // A peer that has hung up stays so.
}

TEST_CASE("dropping a stream after a wait on it was abandoned sends FIN", "[io]") {
  executor exec;
  auto [client, server] = exec.run(connected(exec));
  std::array<std::byte, 8> into;
  CHECK(exec.run(when_any(client.read_some(into), exec.sleep_for(100us))).index() == 1);
  {
    const stream_socket dropped = std::move(client);
  }
  CHECK(exec.run(server.read_some(into)) == 0);
}

TEST_CASE("accept, connect, read and write each stop in their middle", "[io]") {
  executor exec;
  std::array<std::byte, 8> into;
  {
    stream_listener listener{exec, socket_address::loopback(0)};
    CHECK(code_of(exec, with_timeout(listener.accept(), 1ms)) == errc::timed_out);
    // The listener still accepts.
    exec.run(when_all(stream_socket::connect(exec, listener.local_address()), listener.accept()));
  }
  auto [client, server] = exec.run(connected(exec));
  CHECK(code_of(exec, with_timeout(client.read_some(into), 1ms)) == errc::timed_out);
  CHECK(code_of(exec, with_timeout(client.read_exactly(into), 1ms)) == errc::timed_out);
  CHECK(code_of(exec, with_timeout(fill(server), 20ms)) == errc::timed_out);
  CHECK(exec.run(client.read_some(into)) == into.size());

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

TEST_CASE("a stopped read loses no byte", "[io]") {
  executor exec;
  auto [client, server] = exec.run(connected(exec));
  const auto sent = pattern(20'000);
  const auto write = [](executor& e, stream_socket& s, std::span<const std::byte> b) -> task<> {
    for (std::size_t at = 0; at < b.size(); at += 10) {
      co_await s.write_all(b.subspan(at, 10));
      if (at % 100 == 0) co_await e.sleep_for(10us);
    }
  };
  std::vector<std::byte> received;
  const auto read = [](stream_socket& s, std::vector<std::byte>& all, std::size_t total) -> task<> {
    std::mt19937 random{7};
    std::array<std::byte, 16> into;
    while (all.size() < total) {
      const auto outcome = co_await as_result(
          with_timeout(s.read_some(into), std::chrono::microseconds{random() % 20}));
      if (outcome.has_value()) all.insert(all.end(), into.begin(), into.begin() + long(*outcome));
    }
  };
  exec.run(when_all(write(exec, client, sent), read(server, received, sent.size())));
  CHECK(received == sent);
}

TEST_CASE("a write that waits on a half-closed peer sleeps instead of spinning", "[io][E8]") {
  executor exec;
  auto [client, server] = exec.run(connected(exec));
  client.shut_down_writing();
  const std::uint64_t turns = exec.counters().iterations;
  CHECK(code_of(exec, with_timeout(fill(server), 50ms)) == errc::timed_out);
  CHECK(exec.counters().iterations - turns < 100);

  // The stream goes on when there is room.
  const auto sent = pattern(8'000'000);
  std::vector<std::byte> into(1 << 16);
  const auto drain = [](stream_socket& s, std::span<std::byte> b, std::size_t total) -> task<> {
    for (std::size_t n = 0; n < total;) n += co_await s.read_some(b);
  };
  exec.run(when_all(server.write_all(sent), drain(client, into, sent.size())));
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
    auto [client, server] = exec.run(connected(exec));
    std::array<std::byte, 32> into;
    detail::end_flag nobody_asks;
    const environment env{&exec, {}};
    const auto accept = [](stream_listener& l) -> task<> { co_await l.accept(); };
    const auto read = [](stream_socket& s, std::span<std::byte> b) -> task<> {
      for (;;) co_await s.read_exactly(b);
    };
    task<> a = accept(listener), b = read(server, into), c = fill(server);
    task<stream_socket> d = stream_socket::connect(exec, listener.local_address());
    a.start(nobody_asks, env);
    b.start(nobody_asks, env);
    c.start(nobody_asks, env);
    d.start(nobody_asks, env);
    if (random() % 2 == 0) exec.run(client.write_all(pattern(random() % 100)));
    if (random() % 2 == 0) exec.run(exec.sleep_for(std::chrono::microseconds{random() % 50}));
  }
  exec.run(test::until(exec, [&] { return test::counts_of_process().descriptors <= before; }));
  CHECK(test::counts_of_process().descriptors == before);
}

TEST_CASE("a socket that is given away goes on at another executor", "[io]") {
  executor here;
  executor there;
  auto [client, server] = here.run(connected(here));
  stream_socket moved{there, std::move(server).release()};
  const auto sent = pattern(8);
  here.run(client.write_all(sent));
  std::vector<std::byte> got(8);
  there.run(moved.read_exactly(got));
  CHECK(got == sent);
}

TEST_CASE("a Unix socket carries bytes, and its file goes when the listener is closed", "[io]") {
  const test::temporary_folder folder;
  const std::string path = (folder.path / "socket").string();
  cordma::executor executor;
  {
    stream_listener door{executor, socket_address::unix_path(path)};
    auto [client, server] = executor.run(
        when_all(stream_socket::connect(executor, door.local_address()), door.accept()));
    std::array<std::byte, 3> bytes{};
    executor.run(when_all(client.write_all(bytes), server.read_exactly(bytes)));
    CHECK(server.local_address().to_string() == "unix:" + path);
    CHECK(server.peer_address().to_string() == "unix:");
    server.keep_alive(std::chrono::seconds{1}, 3);  // Has no effect, and no error.
    CHECK(std::filesystem::exists(path));
  }
  CHECK_FALSE(std::filesystem::exists(path));
  const auto refused =
      executor.run(as_result(stream_socket::connect(executor, socket_address::unix_path(path))));
  REQUIRE(refused.has_failure());
  CHECK(refused.failure().to_string().find("no such socket") != std::string::npos);
}

TEST_CASE("a Unix socket's file that nobody listens at is replaced, one in use is not", "[io]") {
  const test::temporary_folder folder;
  const socket_address at = socket_address::unix_path((folder.path / "socket").string());
  cordma::executor executor;
  {
    const unique_fd dead{::socket(AF_UNIX, SOCK_STREAM, 0)};
    REQUIRE(::bind(dead.get(), at.data(), at.size_bytes()) == 0);
  }
  stream_listener door{executor, at};
  CHECK_THROWS_WITH((stream_listener{executor, at}),
                    Catch::Contains("another process listens there"));
}

TEST_CASE("clients of a Unix socket wait for room in its backlog", "[io]") {
  cordma::executor executor;
  stream_listener door{
      executor, socket_address::unix_path("@cordma-backlog-" + std::to_string(::getpid())), 1};
  int connected = 0;
  const auto connect_one = [&]() -> task<> {
    stream_socket made = co_await stream_socket::connect(executor, door.local_address());
    connected += made.fd() >= 0 ? 1 : 0;
  };
  const auto take_all = [&]() -> task<> {
    for (int n = 0; n < 4; ++n) static_cast<void>(co_await as_result(door.accept()));
  };
  executor.run(when_all(connect_one(), connect_one(), connect_one(), connect_one(), take_all()));
  CHECK(connected == 4);
}
