// Two processes that borrow from each other, and one is killed.
#include "agent/agent.hpp"

#include "support/held.hpp"
#include "support/leaks.hpp"
#include "support/peer_process.hpp"
#include "support/soak.hpp"
#include "support/until.hpp"

#include <cordma/coro/scope.hpp>
#include <cordma/coro/with_timeout.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <random>
#include <string>

using namespace cordma;
using namespace std::chrono_literals;
using test::held_by;
using test::nothing;
using test::peer_process;
using verbs::access;

namespace {

/// The work of one side, besides answering.
struct part {
  unsigned borrowers = 0;
  unsigned lenders = 0;
  bool takes_offers = true;
  isolation strongest = isolation::exact;
};

/// One round: two parts, and the time when the child ends.
struct script {
  part survivor, victim;
  bool victim_listens = false;
  std::uint64_t events = 0;      ///< events that the survivor sees before the victim's end
  std::uint64_t iterations = 0;  ///< turns of the survivor's executor, after those events
  std::uint64_t seed = 0;
};

part random_part(std::mt19937_64& random) {
  return {.borrowers = unsigned(random() % 3),
          .lenders = unsigned(random() % 3),
          .takes_offers = random() % 8 != 0,
          .strongest = isolation(1 + random() % 3)};
}

script random_script(std::mt19937_64& random) {
  script s{.survivor = random_part(random), .victim = random_part(random)};
  // A round needs an event that the survivor sees.
  if (s.survivor.borrowers + s.survivor.lenders + s.victim.borrowers == 0) s.survivor.borrowers = 1;
  s.victim_listens = random() % 2 == 0;
  (random() % 2 == 0 ? s.events : s.iterations) = random() % 100;
  s.seed = random();
  return s;
}

/// The limits are tight, so that they and ends of leases are met all the time.
connection_options terms_of(const part& p) {
  connection_options o = test::deaf();
  o.agent.offers_max = 3;
  o.agent.operation_margin_min = 1ms;
  o.agent.lending.bytes_max = 64 * 1024;
  o.agent.lending.leases_max = 12;
  o.agent.lending.isolation_max = p.strongest;
  o.agent.lending.isolation_min = std::min(p.strongest, isolation::exact_registered);
  return o;
}

/// One side's connection, and what its tasks keep.
struct player {
  player(connection& conn, std::uint64_t seed)
      : c{conn}, random{seed}, scratch{c.memory().allocate_zeroed(64)} {}

  std::uint64_t below(std::uint64_t n) { return random() % n; }
  std::size_t some_bytes() { return std::size_t{1} << below(14); }
  std::chrono::milliseconds some_lease() { return std::chrono::milliseconds{2 + below(12)}; }
  /// Notes how something ended. True: so has the connection.
  bool is_over(const auto& outcome) {
    ++events;
    if (outcome.has_value()) return false;
    if (outcome.is_cancelled()) {
      odd += "something did not end; ";
      return true;
    }
    const std::error_code code = outcome.failure().code;
    for (const errc fair : {errc::disconnected, errc::lease_expired, errc::lease_ended,
                            errc::limit_exceeded, errc::access_denied}) {
      if (code == make_error_code(fair)) return fair == errc::disconnected;
    }
    odd += std::string{outcome.failure().call} + ": " + code.message() + "; ";
    return false;
  }

  connection& c;
  std::mt19937_64 random;
  std::uint64_t events = 0;
  std::string odd;  ///< outcomes that nothing should have
  local_mr scratch;
  std::array<remote_mr, 4> borrowed;
  std::array<loan, 4> lent;
};

task<> use(player& p, remote_mr memory) {
  const local_mr_slice mine = p.scratch.slice(0, 8);
  for (std::uint64_t n = p.below(4); n > 0; --n) {
    const std::size_t bytes = std::min<std::size_t>(8, memory.size_bytes());
    switch (p.below(4)) {
      case 0: p.is_over(co_await as_result(p.c.read(mine.first(bytes), memory))); break;
      case 1: p.is_over(co_await as_result(p.c.write(mine.first(bytes), memory))); break;
      case 2: p.is_over(co_await as_result(memory.renew(p.some_lease()))); break;
      default:
        if (bytes == 8) p.is_over(co_await as_result(p.c.fetch_add(memory.first(8), 1)));
    }
  }
  switch (p.below(3)) {
    case 0: p.is_over(co_await as_result(p.c.send_remote_mr(std::move(memory)))); break;
    case 1: p.borrowed[p.below(p.borrowed.size())] = std::move(memory); break;
    default: break;  // The memory is dropped.
  }
}

task<> borrow(player& p) {
  for (;;) {
    remote_mr_request request{.lease = p.some_lease()};
    if (p.below(4) == 0) request.access = access::remote_read;
    auto asked = co_await as_result(p.c.request_remote_mr(p.some_bytes(), request));
    if (p.is_over(asked)) co_return;
    if (asked.has_value()) co_await use(p, std::move(*asked));
  }
}

task<> take_offers(player& p) {
  for (;;) {
    auto offered = co_await as_result(p.c.receive_remote_mr());
    if (p.is_over(offered)) co_return;
    if (offered.has_value()) co_await use(p, std::move(*offered));
  }
}

task<> take_what_is_handed_over(player& p) {
  for (;;) {
    const auto taken = co_await as_result(p.c.receive_local_mr());
    if (p.is_over(taken)) co_return;
  }
}

task<> lend(player& p) {
  for (;;) {
    auto made = co_await as_result(
        p.c.send_local_mr(p.c.memory().allocate_zeroed(p.some_bytes()), {.lease = p.some_lease()}));
    if (p.is_over(made)) co_return;
    if (!made.has_value()) {
      co_await test::due_timers_fired();  // The other coroutines run only while this one waits.
      continue;
    }
    loan one = std::move(*made);
    switch (p.below(4)) {
      case 0: p.is_over(co_await as_result(one.ended())); break;
      case 1: p.is_over(co_await as_result(one.revoke())); break;
      case 2: p.lent[p.below(p.lent.size())] = std::move(one); break;
      default: break;  // The loan is revoked.
    }
  }
}

/// Lends and borrows until the connection ends.
void play(scope& tasks, player& p, const part& role) {
  tasks.spawn(take_what_is_handed_over(p));
  if (role.takes_offers) tasks.spawn(take_offers(p));
  for (unsigned n = 0; n < role.borrowers; ++n) tasks.spawn(borrow(p));
  for (unsigned n = 0; n < role.lenders; ++n) tasks.spawn(lend(p));
}

task<connection> meet(runtime& rt, const part& role, bool listens, std::uint16_t port,
                      peer_process::port_teller tell) {
  if (listens) {
    listener acceptor = rt.listen({}, {}, terms_of(role));
    tell(acceptor.local_endpoint().port);
    co_return co_await acceptor.accept();
  }
  const endpoint server{"127.0.0.1", port};
  co_return co_await rt.connect(server, terms_of(role));
}

task<> be_victim(runtime& rt, script s, std::uint16_t port, peer_process::port_teller tell) {
  connection c = co_await meet(rt, s.victim, s.victim_listens, port, tell);
  player p{c, s.seed + 1};
  scope tasks{rt.executor()};
  play(tasks, p, s.victim);
  co_await tasks.join();
}

task<> outlive(runtime& rt, player& p, const script& s, peer_process& peer) {
  scope tasks{rt.executor()};
  play(tasks, p, s.survivor);
  std::uint64_t iterations = 0;
  const auto seen = [&] { return p.events + p.c.lending().granted + p.c.lending().returned; };
  p.is_over(co_await as_result(test::until(rt.executor(), [&] {
    return !p.c.is_open() || (seen() >= s.events && iterations++ >= s.iterations);
  })));
  if (!p.c.is_open()) p.odd += "the connection ended before its time; ";
  peer.kill();
  co_await tasks.join();
}

/// Checks that all has ended, also the loans and the memory that the player keeps.
void check_that_all_is_over(runtime& rt, player& p) {
  CHECK(held_by(p.c) == nothing);
  CHECK(p.c.leases().empty());
  CHECK(p.c.why_lost()->call == std::string{"hang_up"});
  for (loan& l : p.lent) {
    if (!l) continue;
    REQUIRE(l.has_ended());
    CHECK(rt.run(l.ended()).memory.size_bytes() == l.size_bytes());
    l = {};
  }
  for (remote_mr& m : p.borrowed) {
    if (!m) continue;
    CHECK(m.remaining() == 0ms);
    const auto read = rt.run(as_result(p.c.read(p.scratch.slice(0, 1), m.first(1))));
    REQUIRE(read.has_failure());
    CHECK(read.failure().code == make_error_code(errc::disconnected));
    CHECK(rt.run(as_result(m.renew(1s))).has_failure());
    m = {};
  }
}

void outlive_one_peer(const script& s) {
  const std::string before = test::holdings();
  {
    peer_process peer{[&s](runtime& rt, std::uint16_t port, const peer_process::port_teller& tell) {
      return be_victim(rt, s, port, tell);
    }};
    runtime rt{test::on_test_device()};
    std::uint16_t port = 0;
    if (s.victim_listens) {
      peer.start(0);
      port = peer.told_port();
    }
    connection c = rt.run(
        meet(rt, s.survivor, !s.victim_listens, port, [&](std::uint16_t p) { peer.start(p); }));
    const std::size_t used = held_by(c.memory()).memory_bytes;
    {
      player p{c, s.seed};
      const auto outcome = rt.run(as_result(with_timeout(outlive(rt, p, s, peer), 20s)));
      REQUIRE(outcome.has_value());
      CHECK(p.odd == "");
      check_that_all_is_over(rt, p);
    }
    CHECK(held_by(c.memory()).memory_bytes <= used);  // The victim may have been quick.
    c = {};
    rt.run(test::due_timers_fired());
    CHECK(held_by(rt) == nothing);
    // The arena's, and the word that peers flush with.
    const long regions = verbs_faults::live_objects()[std::size_t(verbs_faults::kind::mr)];
    CHECK(regions <= long(rt.memory().statistics().chunks) + 1);
  }
  CHECK(test::holdings() == before);
}

}  // namespace

TEST_CASE("a peer that is killed while it lends and borrows leaves nothing lent and nobody waiting",
          "[agent][device][R6]") {
  std::mt19937_64 random{20261122};
  for (int n = 0; n < 4; ++n) outlive_one_peer(random_script(random));
}

TEST_CASE("a lender or borrower that is killed at any moment leaves nothing lent",
          "[.soak-agent][agent][device][R6]") {
  std::mt19937_64 random{test::soak::seed()};
  for (std::uint64_t n = test::soak::count(1000); n > 0; --n) {
    const script s = random_script(random);
    INFO("with " << n << " rounds to go");
    outlive_one_peer(s);
  }
}
