// A peer cannot reach memory that it was not lent, or is lent no longer.
#include "agent/agent.hpp"

#include "support/held.hpp"
#include "support/lease_pair.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <vector>

using namespace cordma;
using namespace test::leases;
using test::held_by;
using test::nothing;
using verbs::access;

TEST_CASE("memory that is asked for shows nothing of its owner's", "[agent][device][R1]") {
  pair p{lends(strengths().back())};
  {
    local_mr secret = p.server.memory().allocate_uninitialized(256);
    std::ranges::fill(secret.bytes(), std::byte{0x77});
  }
  const remote_mr remote = p.borrow(256);
  local_mr seen = p.client.memory().allocate_uninitialized(256);
  std::ranges::fill(seen.bytes(), std::byte{1});
  p.rt.run(p.client.read(seen.slice(), remote));
  CHECK(std::ranges::all_of(seen.bytes(), [](std::byte b) { return b == std::byte{0}; }));
}

TEST_CASE("an access that was not granted breaks this connection alone", "[agent][device][R4]") {
  for (const isolation level : strengths()) {
    INFO(to_string(level));
    pair p{level};
    auto [other_client, other_server] =
        p.rt.run(when_all(p.rt.connect(p.acceptor.local_endpoint()), p.acceptor.accept()));
    const remote_mr remote = p.borrow(64, {.access = access::remote_read});
    local_mr mine = p.client.memory().allocate_zeroed(64);
    // The slice is made by hand, because this side's own check would refuse.
    const remote_mr_slice raw = remote_mr_slice::decode(remote.slice().encode());
    CHECK(outcome_of(p.rt, p.client.write(mine.slice(), raw)) ==
          make_error_code(wc_errc::remote_access));
    p.wait_for([&] { return !p.client.is_open() && !p.server.is_open(); });
    CHECK(p.client.why_lost().value().code == make_error_code(wc_errc::remote_access));
    CHECK(p.server.why_lost().has_value());
    CHECK(held_by(p.server) == nothing);
    CHECK(p.server.lending().disconnected == 1);
    CHECK(other_client.is_open());
    const remote_mr still = p.rt.run(other_client.request_remote_mr(64));
  }
}

TEST_CASE("one byte beyond a loan, one before it, and elsewhere in the arena fail",
          "[agent][device][R4b]") {
  struct reach {
    std::ptrdiff_t from;
    const char* what;
  };
  for (const isolation level : strengths()) {
    for (const reach r :
         {reach{1, "one byte beyond"}, reach{-1, "one before"}, reach{4096, "elsewhere"}}) {
      for (const bool writes : {true, false}) {
        INFO(to_string(level) << ", " << r.what << ", " << (writes ? "WRITE" : "READ"));
        pair p{level};
        // Neighbours, so that the arena has memory there.
        std::vector<local_mr> around;
        for (int n = 0; n < 200; ++n) around.push_back(p.server.memory().allocate_zeroed(64));
        const remote_mr remote = p.borrow(64);
        local_mr mine = p.client.memory().allocate_zeroed(64);
        std::ranges::fill(mine.bytes(), std::byte{0xee});
        const remote_mr_slice raw{remote.slice().address() + std::uint64_t(r.from), 64,
                                  remote.slice().rkey()};
        const std::error_code code = writes ? outcome_of(p.rt, p.client.write(mine.slice(), raw))
                                            : outcome_of(p.rt, p.client.read(mine.slice(), raw));
        CHECK(code == make_error_code(wc_errc::remote_access));
        for (const local_mr& one : around) {
          REQUIRE(std::ranges::all_of(one.bytes(), [](std::byte b) { return b == std::byte{0}; }));
        }
      }
    }
  }
}

TEST_CASE("after revocation the old key reaches nothing, though the memory is used again",
          "[agent][device][R7]") {
  for (const isolation level : strengths()) {
    INFO(to_string(level));
    pair p{level};
    remote_mr remote = p.borrow(64);
    const remote_mr_slice raw = remote_mr_slice::decode(remote.slice().encode());
    remote = {};
    p.settle();
    const remote_mr next = p.borrow(64);
    CHECK(next.slice().address() == raw.address());
    local_mr again = p.server.memory().allocate_zeroed(64);
    local_mr mine = p.client.memory().allocate_zeroed(64);
    std::ranges::fill(mine.bytes(), std::byte{0xee});
    CHECK(outcome_of(p.rt, p.client.write(mine.slice(), raw)) ==
          make_error_code(wc_errc::remote_access));
    CHECK(std::ranges::all_of(again.bytes(), [](std::byte b) { return b == std::byte{0}; }));
  }
}

TEST_CASE("another connection's peer does not reach a loan by its key", "[agent][device][R4]") {
  for (const isolation level : strengths()) {
    INFO(to_string(level));
    pair p{level};
    auto [other_client, other_server] =
        p.rt.run(when_all(p.rt.connect(p.acceptor.local_endpoint()), p.acceptor.accept()));
    const remote_mr remote = p.borrow(64);
    local_mr mine = other_client.memory().allocate_zeroed(64);
    CHECK(outcome_of(p.rt, other_client.write(mine.slice(), remote)) ==
          make_error_code(errc::wrong_connection));
    const remote_mr_slice raw = remote_mr_slice::decode(remote.slice().encode());
    CHECK(outcome_of(p.rt, other_client.write(mine.slice(), raw)) ==
          make_error_code(wc_errc::remote_access));
    p.wait_for([&peers = other_server] { return !peers.is_open(); });
    CHECK(p.client.is_open());
    local_mr own = p.client.memory().allocate_zeroed(64);
    p.rt.run(p.client.read(own.slice(), remote));
  }
}
