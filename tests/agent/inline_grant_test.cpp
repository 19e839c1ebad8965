#include "agent/inline_grant.hpp"

#include "queue/send_queue.hpp"
#include "request/queue_pair.hpp"
#include "support/connected_pair.hpp"
#include "support/detached.hpp"
#include "support/held.hpp"
#include "support/outcome.hpp"
#include "support/skip.hpp"
#include "support/stack_span.hpp"
#include "support/until.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <deque>
#include <utility>
#include <vector>

using namespace cordma;
using namespace std::chrono_literals;
using test::code_of;
using test::held;
using test::held_by;
using test::nothing;
using verbs::access;

namespace {

constexpr std::size_t size_bytes = 4096;

struct counted_loan : inline_grant {
  counted_loan() noexcept
      : inline_grant{
            [](inline_grant& self) noexcept { ++static_cast<counted_loan&>(self).ended; }} {}
  unsigned ended = 0;
};

struct standing_time {
  manual_clock clock;
};

/// A server that lends, and a client that hears of it from the test. Time stands still, but for
/// what a test lets pass.
struct carrying : standing_time, test::connected_pair {
  carrying() : connected_pair{with(clock)} {}
  static runtime_options with(const manual_clock& c) {
    runtime_options options = test::on_test_device();
    options.executor.clock = &c;
    return options;
  }
  /// Prepares a loan, as for a message that is not sent yet.
  void prepare(inline_grant& loan, verbs::access granted) {
    server.agent()->lends.lend_inline(loan, local_mr::keep(memory.slice()), granted);
  }
  void post(inline_grant& loan) {
    REQUIRE(loan.needs_bind() == (loan.terms().isolation != isolation::shared_key));
    if (loan.needs_bind()) REQUIRE(test::post_detached(server.qp(), loan.bind()));
    loan.posted();
  }
  void lend(verbs::access granted) {
    prepare(lent, granted);
    terms = lent.terms();
    post(lent);
    CHECK(server.lending().offered == 1);
  }
  remote_mr borrow(verbs::access granted) {
    return client.agent()->borrows.borrow_inline(terms, granted, rt.executor().after(1h), number);
  }
  void wait_for(auto condition) { rt.run(test::until(rt.executor(), condition)); }
  template <class Op>
  std::error_code outcome_of(Op&& op) {
    return code_of(rt.run(as_result(std::forward<Op>(op))));
  }

  local_mr memory{server.memory().allocate_zeroed(size_bytes)};
  counted_loan lent;
  loan_terms terms;
  std::uint64_t number = 0;
};

}  // namespace

TEST_CASE("what a message lends is used, and given back without a word of the agents",
          "[agent][device][R1]") {
  carrying p;
  local_mr here = p.client.memory().allocate_zeroed(size_bytes);
  std::ranges::fill(here.bytes(), std::byte{7});
  p.lend(access::remote_write);
  CHECK(p.lent);
  CHECK(p.terms.length == size_bytes);
  CHECK(p.server.leases().at(0).remaining > 24h);  // The loan has no end of its own.
  {
    const remote_mr remote = p.borrow(access::remote_write);
    CHECK(remote.access() == access::remote_write);
    CHECK(remote.isolation() == p.terms.isolation);
    CHECK(p.client.leases().at(0).is_borrowed);
    p.rt.run(p.client.write(here.slice(), remote.slice()));
    CHECK(p.outcome_of(p.client.read(here.slice(), remote.slice())) == errc::access_denied);
  }
  // Dropped memory is borrowed until the answer: only the client uses it no more.
  CHECK(held_by(p.client) == held{.borrowed = 1});
  CHECK(held_by(p.server) == held{.leases = 1, .bytes_lent = size_bytes});
  CHECK_FALSE(p.client.agent()->borrows.end_along(p.number));
  CHECK_FALSE(p.client.agent()->borrows.end_along(p.number));
  CHECK(held_by(p.client) == nothing);
  p.lent.give_back();
  p.wait_for([&] { return p.lent.ended == 1; });
  CHECK_FALSE(p.lent);
  CHECK(held_by(p.server) == nothing);
  CHECK(p.server.lending().returned == 1);
  CHECK(p.memory.bytes()[size_bytes - 1] == std::byte{7});
}

TEST_CASE("what a message that was not sent would have lent is back at once", "[agent][device]") {
  carrying p;
  const auto no_more = [&] {
    CHECK_FALSE(p.lent);
    CHECK(held_by(p.server, p.memory) == nothing);
  };
  p.prepare(p.lent, access::remote_read);
  CHECK(held_by(p.memory) == held{.block_uses = 1});
  p.lent.give_back();
  CHECK(p.lent.ended == 1);
  no_more();
  p.prepare(p.lent, access::remote_read);
  p.lent.revoke();
  CHECK(p.lent.ended == 2);
  no_more();
  p.prepare(p.lent, access::remote_read);
  p.lent.drop();
  CHECK(p.lent.ended == 2);
  no_more();
  CHECK(p.server.lending().offered == 0);
  CHECK(p.server.lending().returned + p.server.lending().revoked == 0);
  CHECK(p.server.qp().driver().requests().of(request_kind::bind).posted == 0);
  // The loan's window is there for the next loan.
  p.lend(access::remote_read);
  p.lent.give_back();
  p.wait_for([&] { return p.lent.ended == 3; });
  CHECK(p.server.lending().returned == 1);
}

TEST_CASE("a send queue that has no room for a message and what it lends is told of when lending",
          "[agent][device]") {
  connection_options few = test::never_not_ready();
  few.capabilities.send_wr_max = 3;
  test::connected_pair p{test::on_test_device(), few, few};
  local_mr memory = p.server.memory().allocate_zeroed(size_bytes);
  counted_loan lent;
  try {
    p.server.agent()->lends.lend_inline(lent, local_mr::keep(memory.slice()), access::remote_read);
    FAIL("was lent");
  } catch (const error& e) {
    CHECK(e.failure().code == errc::limit_exceeded);
    CHECK(e.failure().detail.view().find("send_wr_max") != std::string_view::npos);
  }
  CHECK(held_by(p.server) == nothing);
}

TEST_CASE("a loan that is given back before its bind has ended comes back", "[agent][device]") {
  carrying p;
  p.lend(access::remote_read);
  p.lent.give_back();
  p.lent.give_back();
  p.wait_for([&] { return p.lent.ended == 1; });
  CHECK(p.server.lending().returned == 1);
  CHECK(p.server.lending().forced == 0);
}

TEST_CASE("a peer that keeps what a message lent loses it after the grace", "[agent][device][R7]") {
  carrying p;
  const duration grace = lending_policy{}.grace;
  p.lend(access::remote_read);
  p.lent.revoke();
  p.clock.advance(grace - 1ms);
  p.rt.run(test::due_timers_fired());
  CHECK(p.lent.ended == 0);
  p.clock.advance(1ms);
  p.wait_for([&] { return p.lent.ended == 1; });
  CHECK(p.server.lending().forced == 1);
  CHECK(p.server.lending().revoked == 1);
  // The loan's key reaches nothing.
  local_mr here = p.client.memory().allocate_zeroed(8);
  const remote_mr_slice old{p.terms.address, 8, p.terms.rkey};
  CHECK(p.outcome_of(p.client.read(here.slice(), old)) == wc_errc::remote_access);
}

TEST_CASE("a loan whose sender forgets it comes back in the background", "[agent][device]") {
  for (const bool is_known : {true, false}) {
    carrying p;
    p.lend(access::remote_read);
    p.lent.drop(is_known);
    CHECK_FALSE(p.lent);
    if (is_known) p.clock.advance(lending_policy{}.grace);
    p.wait_for([&] { return p.server.lending().open == 0; });
    CHECK(p.server.lending().forced == (is_known ? 1 : 0));
    CHECK(p.lent.ended == 0);
  }
}

TEST_CASE("the end of the connection ends what messages lent, at both ends",
          "[agent][device][R6]") {
  carrying p;
  p.lend(access::remote_read);
  const remote_mr remote = p.borrow(access::remote_read);
  p.server.qp().abort({.code = errc::disconnected, .call = "test"});
  p.wait_for([&] { return p.lent.ended == 1 && p.client.lending().borrowed == 0; });
  CHECK(p.server.lending().disconnected == 1);
  CHECK_FALSE(p.client.agent()->borrows.end_along(p.number));
  local_mr here = p.rt.memory().allocate_zeroed(size_bytes);
  CHECK(p.outcome_of(p.client.read(here.slice(), remote.slice())) == errc::disconnected);
  CHECK_THROWS_AS(p.borrow(access::remote_read), error);
  CHECK_THROWS_AS(p.lend(access::remote_read), error);
}

TEST_CASE("requests on what a message lent that are under way when it ends are told of",
          "[agent][device]") {
  carrying p;
  p.lend(access::remote_read);
  const remote_mr remote = p.borrow(access::remote_read);
  local_mr here = p.client.memory().allocate_zeroed(size_bytes);
  auto reading = p.client.post(read(here.slice(), remote.slice()));
  CHECK(p.client.agent()->borrows.end_along(p.number));  // The READ's completion is not reaped yet.
  CHECK(p.outcome_of(p.client.read(here.slice(), remote.slice())) == errc::lease_ended);
  CHECK(p.rt.run(std::move(reading)) == size_bytes);
  p.lent.give_back();
  p.wait_for([&] { return p.lent.ended == 1; });
}

TEST_CASE("a loan that waits for a slot, and whose window a message has ended, needs none",
          "[agent][device]") {
  carrying p;
  local_mr heard = p.server.memory().allocate_zeroed(8);
  p.lend(access::remote_read);
  if (p.terms.isolation != isolation::exact) CORDMA_SKIP("there a kernel may panic");
  p.server.post_recv(heard.slice());
  const send_request<1> ends{{}, {}, IBV_WR_SEND_WITH_INV, 0, p.terms.rkey};
  REQUIRE(test::post_detached(p.client.qp(), ends));
  p.rt.run(p.server.next_message());
  // Other loans take every slot, and nothing is reaped meanwhile.
  std::array<counted_loan, agent::reserved_slots> others;
  for (counted_loan& other : others) {
    p.prepare(other, access::remote_read);
    p.post(other);
  }
  std::vector<request_op<send_request<1>>> sends;
  while (p.server.qp().sends().has_room()) {
    p.client.post_recv(heard.slice());
    sends.push_back(p.server.post(send(heard.slice())));
  }
  for (counted_loan& other : others) other.give_back();
  p.lent.give_back();
  CHECK(p.lent.ended == 0);
  p.lent.give_back(p.terms.rkey);
  CHECK(p.lent.ended == 1);
  p.wait_for([&] { return p.server.lending().open == 0; });
  CHECK(p.server.lending().returned == 1 + others.size());
  CHECK_FALSE(p.server.qp().has_failed());
}

TEST_CASE("loans whose invalidations end with the connection end one after another",
          "[agent][device][R6]") {
  struct marking_loan : inline_grant {
    explicit marking_loan(support::stack_span& s) noexcept
        : inline_grant{[](inline_grant& self) noexcept {
            auto& me = static_cast<marking_loan&>(self);
            me.span.mark();
            me.has_ended = true;
          }},
          span{s} {}
    support::stack_span& span;
    bool has_ended = false;
  };
  carrying p;
  support::stack_span span;
  std::deque<marking_loan> loans;
  for (int n = 0; n < 200; ++n) {
    p.prepare(loans.emplace_back(span), access::remote_read);
    p.post(loans.back());
    if (!p.server.qp().sends().has_room()) p.rt.run(p.server.write(const_local_mr_slice{}, {}));
  }
  for (marking_loan& l : loans) l.give_back();
  p.server.qp().abort({.code = errc::disconnected, .call = "test"});
  p.wait_for([&] { return std::ranges::all_of(loans, &marking_loan::has_ended); });
  CHECK(span.bytes() < support::stack_span_max);
}
