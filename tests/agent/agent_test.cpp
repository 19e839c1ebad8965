// Two agents as programs meet them: memory is asked for, used, listed and returned.
#include "agent/agent.hpp"

#include "queue/send_queue.hpp"
#include "request/queue_pair.hpp"
#include "support/held.hpp"
#include "support/lease_pair.hpp"

#include <cordma/coro/with_timeout.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <chrono>
#include <system_error>
#include <utility>
#include <vector>

using namespace cordma;
using namespace std::chrono_literals;
using namespace test::leases;
using test::held;
using test::held_by;
using test::mib;
using test::nothing;
using verbs::access;

TEST_CASE("a peer asks for memory, uses it, and its owner gets it with what was written",
          "[agent][device][R1][R3]") {
  for (const isolation level : strengths()) {
    INFO(to_string(level));
    pair p{level};
    remote_mr remote = p.borrow(4096, {.alignment = 4096, .lease = 30s});
    CHECK(remote.size_bytes() == 4096);
    CHECK(remote.isolation() == level);
    CHECK(remote.access() == lending_policy::lendable_access);
    CHECK(remote.slice().address() % 4096 == 0);
    CHECK(remote.remaining() > 20s);
    CHECK(remote.remaining() <= 27s);
    CHECK(p.server.lending().granted == 1);
    CHECK(held_by(p.server) == held{.leases = 1, .bytes_lent = 4096});
    CHECK(held_by(p.client) == held{.borrowed = 1});

    local_mr mine = p.client.memory().allocate_zeroed(8);
    std::ranges::fill(mine.bytes(), std::byte{0x5a});
    p.rt.run(p.client.write(mine.slice(), remote.slice(4088, 8)));
    CHECK(p.rt.run(p.client.compare_swap(remote.slice(0, 8), 0, 42)) == 0);
    p.rt.run(p.client.read(mine.slice(), remote.slice(0, 8)));
    CHECK(mine.slice().as<std::uint64_t>()[0] == 42);

    p.rt.run(p.client.send_remote_mr(std::move(remote)));
    local_mr back = p.rt.run(with_timeout(p.server.receive_local_mr(), 5s));
    CHECK(back.size_bytes() == 4096);
    CHECK(back.slice().first(8).as<std::uint64_t>()[0] == 42);
    CHECK(std::ranges::all_of(back.slice().last(8).bytes(),
                              [](std::byte b) { return b == std::byte{0x5a}; }));
    CHECK(held_by(p.server, p.client) == nothing);
    CHECK(p.server.lending().returned == 1);
  }
}

TEST_CASE("dropping borrowed memory returns it", "[agent][device][R1]") {
  for (const isolation level : strengths()) {
    pair p{level};
    for (int n = 0; n < 40; ++n) static_cast<void>(p.borrow(100));
    p.settle();
    CHECK(p.server.lending().returned == 40);
    CHECK(p.server.lending().forced == 0);
    CHECK(p.client.is_open());
    // The frames that say so: what is asked, its answer, and what is given back, each time.
    const transfer_counters counted = p.rt.metrics().transfer;
    CHECK(counted.of(request_kind::agent_send).posted >= 3 * 40);
    CHECK(counted.of(request_kind::agent_receive).completed >= 3 * 40);
    CHECK(counted.of(request_kind::agent_send).failed == 0);
  }
}

TEST_CASE("after the connection's end every use is refused as disconnected",
          "[agent][device][R6]") {
  for (const isolation level : strengths()) {
    pair p{level};
    remote_mr borrowed = p.borrow(64);
    remote_mr for_later = p.borrow(64);
    loan lent = p.rt.run(p.server.send_local_mr(p.server.memory().allocate_zeroed(64)));
    local_mr mine = p.client.memory().allocate_zeroed(64);
    p.rt.run(p.client.close());
    CHECK(outcome_of(p.rt, p.client.write(mine.slice(), borrowed)) ==
          make_error_code(errc::disconnected));
    CHECK(outcome_of(p.rt, borrowed.renew(10s)) == make_error_code(errc::disconnected));
    CHECK(borrowed.remaining() == 0ms);
    CHECK(outcome_of(p.rt, p.client.receive_local_mr()) == make_error_code(errc::disconnected));
    CHECK(outcome_of(p.rt, p.client.request_remote_mr(64)) == make_error_code(errc::disconnected));
    p.settle();
    CHECK(p.server.lending().disconnected == 3);
    loan_end end = p.rt.run(lent.ended());
    CHECK(end.reason == loan_end_reason::disconnected);
    CHECK(end.memory.size_bytes() == 64);
    mine = {};
    end = {};
    p.client = {};
    p.server = {};
    p.wait_for([&] { return p.rt.executor().closer().running() == 0; });
    borrowed = {};
  }
}

TEST_CASE("many requests at once are all answered", "[agent][device][R1]") {
  pair p{lends(strengths().back())};
  scope all{p.rt.executor()};
  std::vector<remote_mr> got;
  const auto ask = [](pair& of, std::vector<remote_mr>& to) -> task<> {
    to.push_back(co_await of.client.request_remote_mr(64));
  };
  for (int n = 0; n < 200; ++n) all.spawn(ask(p, got));
  p.rt.run(all.join());
  CHECK(got.size() == 200);
  CHECK(held_by(p.server).leases == 200);
  got.clear();
  p.settle();
  CHECK(p.server.lending().forced == 0);
  CHECK(p.client.is_open());
}

TEST_CASE("memory comes back as fast as it is asked for", "[agent][device][R1][R8]") {
  for (const isolation level : strengths()) {
    connection_options o = lends(level, mib);
    o.agent.lending.leases_max = 200;
    pair p{o};
    scope all{p.rt.executor()};
    const auto borrow = [](connection& from) -> task<> {
      for (int n = 0; n < 200; ++n) static_cast<void>(co_await from.request_remote_mr(4096));
    };
    for (int n = 0; n < 15; ++n) all.spawn(borrow(p.client));
    p.rt.run(all.join());
    p.settle();
    CHECK(p.server.lending().returned == 3000);
    CHECK(p.server.lending().refused == 0);
  }
}

TEST_CASE("memory of the runtime is no use to a connection with a domain of its own",
          "[agent][device]") {
  pair p{isolation::shared_key};
  CHECK(outcome_of(p.rt, p.server.send_local_mr(p.rt.memory().allocate_zeroed(8))) ==
        make_error_code(errc::wrong_protection_domain));
  CHECK(&p.server.memory() != &p.rt.memory());
  CHECK(&p.client.memory() == &p.rt.memory());
}

TEST_CASE("a connection that is dropped with leases of all kinds leaves nothing",
          "[agent][device][R6]") {
  for (const isolation level : strengths()) {
    for (const int dropped : {1, 2, 3}) {
      INFO(to_string(level) << ", dropped by " << dropped);
      pair p{level};
      {
        const remote_mr borrowed = p.borrow(64);
        const loan lent = p.rt.run(p.server.send_local_mr(p.server.memory().allocate_zeroed(64)));
        const loan not_taken =
            p.rt.run(p.server.send_local_mr(p.server.memory().allocate_zeroed(64)));
        const remote_mr taken = p.rt.run(p.client.receive_remote_mr());
        p.rt.run(p.client.send_remote_mr(p.borrow(64)));
        if ((dropped & 1) != 0) p.server = {};
        if ((dropped & 2) != 0) p.client = {};
        p.wait_for([&] { return p.rt.executor().closer().running() == 0; });
      }
      p.server = {};
      p.client = {};
      p.wait_for([&] { return p.rt.executor().closer().running() == 0; });
      CHECK(held_by(p.rt) == nothing);
    }
  }
}

TEST_CASE("without an agent on both sides there is nothing to ask", "[agent][device]") {
  connection_options none;
  none.agent.enabled = false;
  for (const bool at_server : {true, false}) {
    pair p{at_server ? none : connection_options{}, at_server ? connection_options{} : none};
    CHECK_FALSE(p.client.has_agent());
    CHECK_FALSE(p.server.has_agent());
    CHECK_THROWS_WITH(p.borrow(1), Catch::Contains("agent.enabled"));
  }
}

namespace {

task<> lend_and_note(connection& c, std::error_code& end) {
  const auto lent = co_await as_result(c.send_local_mr(c.memory().allocate_zeroed(64)));
  end = lent.has_failure() ? lent.failure().code : std::error_code{};
}

}  // namespace

TEST_CASE("a loan that is cut off before the peer has it says why the connection ended",
          "[agent][device]") {
  pair p{connection_options{}};
  std::error_code end;
  scope lending{p.rt.executor()};
  lending.spawn(lend_and_note(p.server, end));  // The loan's bind is posted.
  p.server.qp().abort({.code = errc::device_failed, .call = "test"});
  p.rt.run(lending.join());
  CHECK(end == errc::device_failed);
  CHECK(held_by(p.server) == nothing);
}

TEST_CASE("leases are listed, in both directions", "[agent][device]") {
  pair p{lends(strengths().back())};
  const remote_mr remote = p.borrow(64, {.access = access::remote_read, .lease = 30s});
  const std::vector<lease_info> lent = p.server.leases();
  const std::vector<lease_info> borrowed = p.client.leases();
  REQUIRE(lent.size() == 1);
  REQUIRE(borrowed.size() == 1);
  CHECK(lent[0].peer == p.server.peer().to_string());
  CHECK(borrowed[0].peer == p.client.peer().to_string());
  CHECK_FALSE(lent[0].is_borrowed);
  CHECK(borrowed[0].is_borrowed);
  CHECK(lent[0].size_bytes == 64);
  CHECK(lent[0].access == access::remote_read);
  CHECK(lent[0].isolation == borrowed[0].isolation);
  CHECK(lent[0].remaining > borrowed[0].remaining);
}

TEST_CASE("what was only read goes back without another READ, what may be written with one",
          "[agent][device]") {
  for (const auto may : {access::remote_read, access::remote_read | access::remote_write}) {
    pair p{lends(strengths().back())};
    local_mr here = p.client.memory().allocate_zeroed(64);
    remote_mr remote = p.borrow(64, {.access = may});
    p.rt.run(p.client.read(here.slice(), remote.slice()));
    const std::uint32_t before = p.client.qp().sends().posted_total();
    remote = {};
    p.wait_for([&] { return p.server.lending().open == 0; });
    const bool was_flushed = p.client.qp().sends().posted_total() != before;
    CHECK(was_flushed == (may != access::remote_read));
  }
}

TEST_CASE("a note reaches the peer's agent as it is, whatever it says", "[agent][device]") {
  for (const agent::note& said : {agent::note{0, 0, 0}, agent::note{1, ~std::uint64_t{0}, 200}}) {
    pair p{connection_options{}};
    CHECK_FALSE(p.server.agent()->peer_note);
    p.client.agent()->send_note(said);
    p.rt.run(p.server.agent()->note_arrived.wait());
    CHECK(p.server.agent()->peer_note == said);
    CHECK_FALSE(p.client.agent()->note_arrived.is_set());
  }
}

TEST_CASE("a second note ends the connection", "[agent][device]") {
  pair p{connection_options{}};
  p.client.agent()->send_note({1, 2, 3});
  p.rt.run(p.server.agent()->note_arrived.wait());
  p.client.agent()->send_note({1, 2, 3});
  p.wait_for([&] { return p.server.why_lost().has_value(); });
  CHECK(p.server.why_lost()->code == errc::bad_frame);
  REQUIRE(p.server.agent()->bad_frame);
  CHECK(p.server.agent()->bad_frame->detail.view() == "two notes");
}
