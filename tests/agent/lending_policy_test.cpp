// The policy of an owner: what it lends, to whom and how much, and the memory that it keeps.
#include "agent/agent.hpp"

#include "support/lease_pair.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

using namespace cordma;
using namespace std::chrono_literals;
using namespace test::leases;
using test::mib;
using verbs::access;

TEST_CASE("what has a registration of its own is kept for the next request, and shows nothing",
          "[agent][device][R1][R7]") {
  pair p{isolation::exact_registered};
  local_mr mine = p.client.memory().allocate_zeroed(64);
  std::ranges::fill(mine.bytes(), std::byte{0x77});
  std::uint64_t address = 0;
  std::uint32_t old_key = 0;
  {
    const remote_mr remote = p.borrow(64);
    address = remote.slice().address();
    old_key = remote.slice().rkey();
    p.rt.run(p.client.write(mine.slice(), remote));
  }
  p.settle();
  CHECK(p.server.lending().bytes_kept == 64);
  const remote_mr other_size = p.borrow(128);
  CHECK(p.server.lending().bytes_kept == 64);
  const remote_mr remote = p.borrow(64);
  CHECK(p.server.lending().bytes_kept == 0);
  CHECK(remote.slice().address() == address);
  CHECK(remote.slice().rkey() != old_key);
  p.rt.run(p.client.read(mine.slice(), remote));
  CHECK(std::ranges::count(mine.bytes(), std::byte{0}) == 64);
  CHECK(outcome_of(p.rt, p.client.read(mine.slice(), remote_mr_slice{address, 64, old_key})) ==
        make_error_code(wc_errc::remote_access));
}

TEST_CASE("what is kept for a peer counts as the peer's", "[agent][device][R8]") {
  pair p{lends(isolation::exact_registered, 65536)};
  for (std::size_t bytes = 32768; bytes > 32768 - 20; --bytes) {
    static_cast<void>(p.borrow(bytes));
    p.settle();
    REQUIRE(p.server.lending().bytes_kept <= 65536);
  }
  CHECK(p.server.lending().bytes_kept > 0);
  const remote_mr all = p.borrow(65536);
  CHECK(p.server.lending().bytes_kept == 0);
}

TEST_CASE("what is kept for a peer is few and small", "[agent][device][R8]") {
  pair p{isolation::exact_registered};
  std::vector<remote_mr> held;
  for (int n = 0; n < 70; ++n) held.push_back(p.borrow(64));
  held.clear();
  p.settle();
  CHECK(p.server.lending().bytes_kept == 64 * 64);
  static_cast<void>(p.borrow(65537));
  p.settle();
  CHECK(p.server.lending().bytes_kept == 64 * 64);
  static_cast<void>(p.borrow(65536));  // The memory takes the oldest's place.
  p.settle();
  CHECK(p.server.lending().bytes_kept == 63 * 64 + 65536);
}

TEST_CASE("who drops memory and asks for as much again gets it, though there is no more",
          "[agent][device][R1][R8]") {
  for (const isolation level : strengths()) {
    pair p{lends(level, 4096)};
    const auto exchange = [](connection& from) -> task<> {
      remote_mr held = co_await from.request_remote_mr(4096);
      for (int n = 0; n < 50; ++n) {
        held = {};
        held = co_await from.request_remote_mr(4096);
      }
    };
    p.rt.run(exchange(p.client));
    p.settle();
    CHECK(p.server.lending().returned == 51);
  }
}

TEST_CASE("what is kept for the next request makes room for other memory", "[agent][device][R8]") {
  runtime_options small;
  small.memory.limit_bytes = 8 * mib;
  test::connected_pair p{std::move(small), {}, lends(isolation::exact_registered)};
  static_cast<void>(p.rt.run(p.client.request_remote_mr(65536)));
  p.rt.run(test::until(p.rt.executor(), [&] { return p.server.lending().open == 0; }));
  REQUIRE(p.server.lending().bytes_kept == 65536);
  // Takes all that the allocator has, but for what is kept.
  std::vector<local_mr> all;
  for (std::size_t bytes = mib; bytes >= 4096; bytes /= 2) {
    try {
      for (;;) all.push_back(p.rt.memory().allocate_uninitialized(bytes));
    } catch (const error&) {
    }
  }
  const remote_mr remote = p.rt.run(p.client.request_remote_mr(61440));
  CHECK(remote.size_bytes() == 61440);
  CHECK(p.server.lending().bytes_kept == 0);
}

TEST_CASE("the owner caps access and lease", "[agent][device][R1]") {
  connection_options o = lends(strengths().back());
  o.agent.lending.access_max = access::remote_read;
  o.agent.lending.lease_max = 5s;
  pair p{o};
  remote_mr remote = p.borrow(64, {.lease = 60s});
  CHECK(remote.access() == access::remote_read);
  CHECK(remote.remaining() <= 4500ms);
  local_mr mine = p.client.memory().allocate_zeroed(64);
  CHECK(outcome_of(p.rt, p.client.write(mine.slice(), remote)) ==
        make_error_code(errc::access_denied));
  p.rt.run(p.client.read(mine.slice(), remote));
  CHECK(outcome_of(p.rt, p.client.request_remote_mr(64, {.access = access::remote_write})) ==
        make_error_code(errc::access_denied));
  CHECK(p.client.is_open());
}

TEST_CASE("nobody may ask unless the policy says so, and not for more than it says",
          "[agent][device][R8]") {
  pair nobody{connection_options{}};
  CHECK(outcome_of(nobody.rt, nobody.client.request_remote_mr(1)) ==
        make_error_code(errc::access_denied));
  CHECK(nobody.server.lending().refused == 1);

  connection_options o = lends(strengths().back(), 8192);
  o.agent.lending.leases_max = 3;
  pair p{o};
  const remote_mr half = p.borrow(4096);
  CHECK(outcome_of(p.rt, p.client.request_remote_mr(4097)) ==
        make_error_code(errc::limit_exceeded));
  CHECK(outcome_of(p.rt, p.client.request_remote_mr(~std::size_t{0})) ==
        make_error_code(errc::limit_exceeded));
  const remote_mr one = p.borrow(1);
  remote_mr other = p.borrow(1);
  CHECK(outcome_of(p.rt, p.client.request_remote_mr(1)) == make_error_code(errc::limit_exceeded));
  other = {};
  p.wait_for([&] { return p.server.lending().open == 2; });
  other = p.borrow(1);
  CHECK(p.client.is_open());
}

TEST_CASE("an alignment counts as what it costs, in the totals too", "[agent][device][R8]") {
  connection_options o = lends(strengths().back());
  o.agent.lending.total_bytes_max = 3 * mib;
  pair p{o};
  const remote_mr_request aligned{.alignment = 2 * mib};
  remote_mr one = p.borrow(1, aligned);
  CHECK(outcome_of(p.rt, p.client.request_remote_mr(1, aligned)) ==
        make_error_code(errc::limit_exceeded));
  const remote_mr other = p.borrow(1);
  one = {};
  p.wait_for([&] { return p.server.lending().open == 1; });
  one = p.borrow(1, aligned);
}

TEST_CASE("what makes no sense is refused before it is asked", "[agent][device][R1]") {
  pair p{lends(strengths().back())};
  const auto refused = [&](std::size_t bytes, const remote_mr_request& request) {
    return outcome_of(p.rt, p.client.request_remote_mr(bytes, request));
  };
  CHECK(refused(0, {}) == make_error_code(errc::out_of_range));
  CHECK(refused(1, {.alignment = 3}) == make_error_code(errc::out_of_range));
  CHECK(refused(1, {.alignment = 4 * mib}) == make_error_code(errc::out_of_range));
  CHECK(refused(1, {.access = access::none}) == make_error_code(errc::access_denied));
  CHECK(refused(1, {.access = access::local_write}) == make_error_code(errc::access_denied));
  CHECK(refused(1, {.lease = 50ms}) == make_error_code(errc::out_of_range));
  CHECK(refused(1, {.lease = 25h}) == make_error_code(errc::out_of_range));
  CHECK(p.server.lending().refused == 0);
}

TEST_CASE("offers beyond those that may wait are declined", "[agent][device][R3]") {
  connection_options o;
  o.agent.offers_max = 2;
  pair p{lends(strengths().back()), o};
  std::vector<loan> loans;
  for (int n = 0; n < 3; ++n)
    loans.push_back(p.rt.run(p.server.send_local_mr(p.server.memory().allocate_zeroed(8))));
  CHECK(p.rt.run(loans[2].ended()).reason == loan_end_reason::returned);
  CHECK_FALSE(loans[0].has_ended());
  const remote_mr first = p.rt.run(p.client.receive_remote_mr());
  const remote_mr second = p.rt.run(p.client.receive_remote_mr());
  CHECK(first.slice().address() == loans[0].remote_slice().address());
}

TEST_CASE("a peer that addresses loans from zero learns no address", "[agent][device][R1]") {
  connection_options o = lends(strengths().back());
  o.agent.lending.isolation_min = isolation::exact_registered;
  o.agent.lending.zero_based = true;
  pair p{o};
  const remote_mr remote = p.borrow(4096);
  CHECK(remote.slice().address() == 0);
  local_mr mine = p.client.memory().allocate_zeroed(8);
  mine.bytes()[0] = std::byte{3};
  p.rt.run(p.client.write(mine.slice(), remote.last(8)));
  CHECK(p.rt.run(p.client.fetch_add(remote.last(8), 1)) == 3);
}
