// How a lease lasts and ends: time, renewal, return, revocation, handing over.
#include "agent/agent.hpp"

#include "queue/send_queue.hpp"
#include "request/queue_pair.hpp"
#include "support/held.hpp"
#include "support/lease_pair.hpp"

#include <cordma/coro/when_all.hpp>
#include <cordma/coro/with_timeout.hpp>

#include <catch2/catch.hpp>

#include <chrono>
#include <utility>
#include <vector>

using namespace cordma;
using namespace std::chrono_literals;
using namespace test::leases;
using test::held;
using test::held_by;
using test::nothing;

TEST_CASE("a lease that is over is refused locally, and its owner has the memory back",
          "[agent][device][R2]") {
  for (const isolation level : strengths()) {
    pair p{level};
    remote_mr remote = p.borrow(64, {.lease = 200ms});
    local_mr mine = p.client.memory().allocate_zeroed(64);
    p.settle();
    CHECK(remote.remaining() == 0ms);
    const std::uint32_t posted = p.client.qp().sends().posted_total();
    CHECK(outcome_of(p.rt, p.client.write(mine.slice(), remote)) ==
          make_error_code(errc::lease_expired));
    CHECK(outcome_of(p.rt, p.client.send_remote_mr(std::move(remote))) ==
          make_error_code(errc::lease_expired));
    CHECK(p.client.qp().sends().posted_total() == posted);
    CHECK(p.server.lending().expired == 1);
    CHECK(p.server.lending().forced == 0);
    CHECK(p.client.is_open());
  }
}

TEST_CASE("renewing makes a lease last", "[agent][device][R2]") {
  pair p{lends(strengths().back())};
  remote_mr remote = p.borrow(64, {.lease = 10s});
  const auto before = remote.remaining();
  p.rt.run(remote.renew(30s));
  CHECK(remote.remaining() > before);
  CHECK(remote.remaining() > 20s);
  p.rt.run(remote.renew(1s));  // Never shorter.
  CHECK(remote.remaining() > 20s);
  CHECK(p.server.leases().front().remaining > 20s);
}

TEST_CASE("a loan comes back when the peer returns it", "[agent][device][R3]") {
  for (const isolation level : strengths()) {
    pair p{level};
    local_mr memory = p.server.memory().allocate_zeroed(100);
    memory.bytes()[99] = std::byte{7};
    loan lent = p.rt.run(p.server.send_local_mr(std::move(memory), {.lease = 30s}));
    CHECK(lent.isolation() == level);
    {
      remote_mr remote = p.rt.run(with_timeout(p.client.receive_remote_mr(), 5s));
      CHECK(remote.size_bytes() == 100);
      local_mr mine = p.client.memory().allocate_zeroed(1);
      p.rt.run(p.client.read(mine.slice(), remote.last(1)));
      CHECK(mine.bytes()[0] == std::byte{7});
      mine.bytes()[0] = std::byte{9};
      p.rt.run(p.client.write(mine.slice(), remote.first(1)));
      CHECK_FALSE(lent.has_ended());
    }
    loan_end end = p.rt.run(lent.ended());
    CHECK(end.reason == loan_end_reason::returned);
    CHECK(end.memory.bytes()[0] == std::byte{9});
    CHECK(held_by(p.server) == nothing);
  }
}

TEST_CASE("a loan that is handed back comes with its contents", "[agent][device][R3]") {
  pair p{lends(strengths().back())};
  loan lent = p.rt.run(p.server.send_local_mr(p.server.memory().allocate_zeroed(8)));
  remote_mr remote = p.rt.run(p.client.receive_remote_mr());
  CHECK(p.rt.run(p.client.fetch_add(remote, 5)) == 0);
  p.rt.run(p.client.send_remote_mr(std::move(remote)));
  loan_end end = p.rt.run(lent.ended());
  CHECK(end.memory.slice().as<std::uint64_t>()[0] == 5);
}

TEST_CASE("a loan is revoked: the holder is refused from then on", "[agent][device][R2][R7]") {
  for (const isolation level : strengths()) {
    pair p{level};
    loan lent = p.rt.run(p.server.send_local_mr(p.server.memory().allocate_zeroed(64)));
    remote_mr remote = p.rt.run(p.client.receive_remote_mr());
    local_mr mine = p.client.memory().allocate_zeroed(64);
    p.rt.run(p.client.write(mine.slice(), remote));
    loan_end end = p.rt.run(lent.revoke());
    CHECK(end.reason == loan_end_reason::revoked);
    CHECK(end.memory.size_bytes() == 64);
    CHECK(outcome_of(p.rt, p.client.write(mine.slice(), remote)) ==
          make_error_code(errc::lease_ended));
    CHECK(p.server.lending().forced == 0);
    CHECK(p.client.is_open());
  }
}

TEST_CASE("a loan that is dropped is revoked in the background, accepted or not",
          "[agent][device][R2]") {
  pair p{lends(strengths().back())};
  const held before = held_by(p.rt, p.server, p.client);
  {
    loan never_taken = p.rt.run(p.server.send_local_mr(p.server.memory().allocate_zeroed(64)));
    loan taken = p.rt.run(p.server.send_local_mr(p.server.memory().allocate_zeroed(64)));
  }
  p.settle();
  CHECK(p.server.lending().revoked == 2);
  CHECK(held_by(p.rt, p.server, p.client) == before);
  CHECK(outcome_of(p.rt, with_timeout(p.client.receive_remote_mr(), 1ms)) ==
        make_error_code(errc::timed_out));
  CHECK(p.client.is_open());
}

TEST_CASE("an answer that comes too late gives the memory back", "[agent][device][R5]") {
  for (const isolation level : strengths()) {
    pair p{level};
    CHECK(outcome_of(p.rt, p.client.request_remote_mr(64, {.timeout = 0ms})) ==
          make_error_code(errc::timed_out));
    p.wait_for([&] { return p.server.lending().granted == 1; });
    p.settle();
    CHECK(p.server.lending().returned == 1);
    CHECK(held_by(p.server, p.client) == nothing);
    CHECK(p.client.is_open());
  }
}

TEST_CASE("a wait for memory that is stopped loses none", "[agent][device][R3]") {
  pair p{lends(strengths().back())};
  CHECK(outcome_of(p.rt, with_timeout(p.server.receive_local_mr(), 0ms)) ==
        make_error_code(errc::timed_out));
  CHECK(outcome_of(p.rt, with_timeout(p.client.receive_remote_mr(), 0ms)) ==
        make_error_code(errc::timed_out));
  p.rt.run(p.client.send_remote_mr(p.borrow(100)));
  CHECK(held_by(p.server).leases == 1);  // The memory still counts for the peer.
  CHECK(p.rt.run(p.server.receive_local_mr()).size_bytes() == 100);
  CHECK(held_by(p.server) == nothing);
}

TEST_CASE(
    "memory that is there already stays for the next when its receive loses to something else",
    "[agent][device][R3]") {
  pair p{lends(strengths().back())};
  event happened{p.rt.executor()};
  happened.set();
  const auto lose = [](event& first, auto receive) -> task<> {
    const auto outcome = co_await when_any(first.wait(), std::move(receive));
    CHECK(outcome.index() == 0);
  };
  p.rt.run(p.client.send_remote_mr(p.borrow(100)));
  p.rt.run(lose(happened, p.server.receive_local_mr()));
  CHECK(p.rt.run(with_timeout(p.server.receive_local_mr(), 10s)).size_bytes() == 100);

  const loan lent = p.rt.run(p.server.send_local_mr(p.rt.memory().allocate_zeroed(200)));
  p.wait_for([&] { return p.client.leases().size() == 1; });
  p.rt.run(lose(happened, p.client.receive_remote_mr()));
  CHECK(p.rt.run(with_timeout(p.client.receive_remote_mr(), 10s)).size_bytes() == 200);
}

TEST_CASE("memory that was handed over is still there when its connection is not",
          "[agent][device][R3]") {
  pair p{lends(strengths().back())};
  p.rt.run(p.client.send_remote_mr(p.borrow(100)));
  p.rt.run(p.client.close());
  p.wait_for([&] { return !p.server.is_open(); });
  CHECK(p.rt.run(p.server.receive_local_mr()).size_bytes() == 100);
  CHECK(outcome_of(p.rt, p.server.receive_local_mr()) == make_error_code(errc::disconnected));
}

TEST_CASE("an owner that closes once it has the memory lets its peer know that it has",
          "[agent][device][R3]") {
  const auto take_and_close = [](connection& of) -> task<> {
    const local_mr memory = co_await of.receive_local_mr();
    co_await of.close();
  };
  for (int n = 0; n < 20; ++n) {
    pair p{lends(strengths().back())};
    remote_mr remote = p.borrow(64);
    const auto [told, closed] =
        p.rt.run(when_all(as_result(p.client.send_remote_mr(std::move(remote))),
                          as_result(take_and_close(p.server))));
    CHECK(told.has_value());
    CHECK(closed.has_value());
    CHECK(held_by(p.server, p.client) == nothing);
  }
}
