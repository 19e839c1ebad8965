#include "connection/handshake_set.hpp"

#include "support/silent_client.hpp"
#include "support/until.hpp"

#include <cordma/coro/when_all.hpp>
#include <cordma/io/executor.hpp>

#include <catch2/catch.hpp>

#include <array>
#include <deque>

using namespace cordma;
using namespace std::chrono_literals;
using detail::client_host;
using detail::handshake_set;

namespace {

client_host host(std::uint8_t number) {
  client_host made{.family = AF_INET6};
  made.address[15] = number;
  return made;
}

const failure crowded{.code = errc::refused, .call = "handshake", .detail = "crowded"};

/// Members of the hosts with these numbers, the oldest first; all have lasted for the grace.
struct crowd {
  explicit crowd(std::initializer_list<std::uint8_t> hosts)
      : set{executor, unsigned(hosts.size()), 10s} {
    for (const std::uint8_t one : hosts) {
      members.emplace_back(set, executor.run(set.enter(host(one))), host(one));
    }
    clock.advance(set.grace());
  }
  /// Returns the index of the member that is dropped for a newcomer of this host; -1: none.
  int drop_for(std::uint8_t newcomer) {
    std::vector<bool> before;
    for (const auto& m : members) before.push_back(m.was_dropped());
    CHECK(set.drop_one(host(newcomer), crowded) == duration::max());
    for (std::size_t i = 0; i < members.size(); ++i) {
      if (members[i].was_dropped() != before[i]) return int(i);
    }
    return -1;
  }

  manual_clock clock;
  cordma::executor executor{{.clock = &clock}};
  handshake_set set;
  std::deque<handshake_set::member> members;
};

task<> set_soon(event& e) {
  e.set();
  co_return;
}

task<connection> ready_after(event& e) {
  co_await e.wait();
  co_return connection{};
}

task<connection> fail_after(event& e) {
  co_await e.wait();
  throw error{{.code = errc::bad_handshake, .call = "test"}};
}

}  // namespace

TEST_CASE("the oldest handshake of the host with most is dropped", "[connection][floods]") {
  crowd c{1, 2, 3, 2, 2, 3};
  CHECK(c.drop_for(9) == 1);
  // Hosts 2 and 3 have two each now; the oldest member is the third.
  CHECK(c.drop_for(9) == 2);
  CHECK(c.drop_for(9) == 3);
  // Each host has one.
  CHECK(c.drop_for(9) == 0);
}

TEST_CASE("a newcomer counts for its own host", "[connection][floods]") {
  crowd c{1, 2, 3};
  CHECK(c.drop_for(3) == 2);
  CHECK(c.drop_for(2) == 1);
}

TEST_CASE("nobody is dropped where nobody shakes hands", "[connection][floods]") {
  crowd c{1};
  CHECK(c.drop_for(1) == 0);
  CHECK(c.drop_for(1) == -1);
}

TEST_CASE("a handshake that succeeded is not dropped, and one that failed is the first to go",
          "[connection][floods]") {
  event go;
  crowd c{1, 1, 2, 2};
  auto [done, failed, go_on] =
      c.executor.run(when_all(as_result(c.members[0].run(ready_after(go))),
                              as_result(c.members[3].run(fail_after(go))), set_soon(go)));
  CHECK(done.has_value());
  REQUIRE(failed.has_failure());
  CHECK(failed.failure().code == make_error_code(errc::bad_handshake));
  CHECK(c.drop_for(1) == -1);  // The one that failed ends with its own reason.
  CHECK_FALSE(c.members[3].was_dropped());
  CHECK(c.drop_for(1) == 1);
  CHECK(c.drop_for(1) == 2);
  CHECK(c.drop_for(1) == -1);
}

TEST_CASE("a dropped handshake ends with the reason", "[connection][floods]") {
  event never;
  crowd c{1};
  auto drop = [&]() -> task<> {
    c.set.drop_one(host(1), crowded);
    co_return;
  };
  auto [ended, dropped] =
      c.executor.run(when_all(as_result(c.members[0].run(ready_after(never))), drop()));
  REQUIRE(ended.has_failure());
  CHECK(ended.failure().detail.view() == "crowded");
}

TEST_CASE("a handshake that succeeds in the step in which it is dropped lets another one go",
          "[connection][floods]") {
  event go;
  crowd c{1, 2};
  auto drop = [&]() -> task<> {
    go.set();  // The handshake will go on in the next iteration.
    c.set.drop_one(host(1), crowded);
    co_return;
  };
  auto [ended, dropped] =
      c.executor.run(when_all(as_result(c.members[0].run(ready_after(go))), drop()));
  CHECK(ended.has_value());
  CHECK_FALSE(c.members[0].was_dropped());
  CHECK(c.members[1].was_dropped());
}

TEST_CASE("a handshake keeps its place for a while, and then a newcomer gets it",
          "[connection][floods]") {
  crowd c{1, 2};
  c.members.pop_front();
  c.members.emplace_back(c.set, c.executor.run(c.set.enter(host(2))), host(2));
  c.clock.advance(30ms);
  // Host 2 has both: its older member has lasted for long enough.
  CHECK(c.drop_for(9) == 0);
  CHECK(c.set.drop_one(host(9), crowded) == 970ms);
  auto wait = [&]() -> task<> {
    co_await test::due_timers_fired();
    CHECK_FALSE(c.members[0].was_dropped());
    c.clock.advance(970ms);
    co_await test::until(c.executor, [&] { return c.members[0].was_dropped(); });
    c.members.pop_back();
  };
  c.members.pop_front();  // The permit is free.
  const handshake_set::permit first = c.executor.run(c.set.enter(host(9)));
  auto [permit, waited] = c.executor.run(when_all(c.set.enter(host(9)), wait()));
  CHECK(permit != nullptr);
}

TEST_CASE("all handshakes can be dropped that have lasted for a while", "[connection][floods]") {
  crowd c{1, 2, 2};
  c.members.pop_back();
  c.members.emplace_back(c.set, c.executor.run(c.set.enter(host(3))), host(3));
  c.set.drop_all(crowded);
  CHECK(c.members[0].was_dropped());
  CHECK(c.members[1].was_dropped());
  CHECK_FALSE(c.members[2].was_dropped());
  c.clock.advance(c.set.grace());
  c.set.drop_all(crowded);
  CHECK(c.members[2].was_dropped());
}

namespace {

client_host host_of(const stream_socket& socket) { return detail::host_of(socket.peer_address()); }

}  // namespace

TEST_CASE("a host is an address without the port, in either notation", "[connection][floods]") {
  executor executor;
  stream_listener acceptor{executor, socket_address::loopback(0)};
  const std::uint16_t port = acceptor.local_address().port();
  const test::raw_peer a = test::dial_from(executor, "127.0.0.1", port);
  const test::raw_peer b = test::dial_from(executor, "127.0.0.1", port);
  const test::raw_peer c = test::dial_from(executor, "127.0.0.2", port);
  std::array<client_host, 3> seen;
  for (client_host& one : seen) one = host_of(executor.run(acceptor.accept()));
  CHECK(seen[0] == seen[1]);
  CHECK(seen[0] != seen[2]);

  std::array<int, 2> pair{};
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair.data()) == 0);
  const stream_socket one{executor, unique_fd{pair[0]}};
  const stream_socket other{executor, unique_fd{pair[1]}};
  CHECK(host_of(one) == host_of(other));
  CHECK(host_of(one) != seen[0]);

  unique_fd v6{::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  if (!v6.is_open()) return;  // The kernel has no IPv6.
  sockaddr_in6 mapped{};
  mapped.sin6_family = AF_INET6;
  mapped.sin6_port = htons(port);
  REQUIRE(::inet_pton(AF_INET6, "::ffff:127.0.0.1", &mapped.sin6_addr) == 1);
  REQUIRE(::connect(v6.get(), reinterpret_cast<const sockaddr*>(&mapped), sizeof mapped) == 0);
  CHECK(host_of(stream_socket{executor, std::move(v6)}) == seen[0]);
}
