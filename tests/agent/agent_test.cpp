#include <cordma/detail/agent/agent.hpp>

#include "support/connected_pair.hpp"
#include "support/sizes.hpp"
#include "support/until.hpp"
#include "transfer/send_queue.hpp"

#include <cordma/coro/when_any.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <chrono>
#include <optional>
#include <vector>

using namespace cordma;
using namespace std::chrono_literals;
using test::mib;
using verbs::access;

namespace {

/// A policy under which a peer may ask, of one strength.
connection_options lends(isolation level, std::size_t bytes_max = 64 * mib) {
  connection_options o;
  o.agent.lending.bytes_max = bytes_max;
  o.agent.lending.isolation_min = o.agent.lending.isolation_max = level;
  return o;
}

/// The strengths that the device under test has.
std::vector<isolation> strengths() {
  runtime rt{test::on_test_device()};
  const verbs::port_info port = rt.context().active_port();
  const verbs::gid_entry gid = verbs::choose_gid(rt.context().gid_table(port.number)).entry;
  lending office{rt.context(), rt.protection_domain()};
  std::vector<isolation> all{isolation::shared_key, isolation::exact_registered};
  if (office.strongest(port, gid) == isolation::exact) all.push_back(isolation::exact);
  return all;
}

/// A client that borrows from a server.
struct pair : test::connected_pair {
  explicit pair(const connection_options& of_server, const connection_options& of_client = {})
      : connected_pair{{}, of_client, of_server} {}
  explicit pair(isolation level) : pair{lends(level)} {}

  remote_mr borrow(std::size_t bytes, remote_mr_request request = {}) {
    return rt.run(client.request_remote_mr(bytes, request));
  }
  void wait_for(auto condition) { rt.run(test::until(rt.executor(), condition)); }
  /// Turns of the executor until the owner has no open lease.
  void settle() {
    wait_for([&] { return server.lending().open == 0; });
  }
};

template <class Op>
std::error_code outcome_of(runtime& rt, Op&& op) {
  const auto outcome = rt.run(as_result(std::forward<Op>(op)));
  return outcome.has_failure() ? outcome.failure().code : std::error_code{};
}

}  // namespace

TEST_CASE("a peer asks for memory, uses it, and its owner gets it with what was written",
          "[agent][device][R1][R3]") {
  for (const isolation level : strengths()) {
    INFO(to_string(level));
    pair p{level};
    remote_mr remote = p.borrow(4096, {.alignment = 4096, .lease = 30s});
    CHECK(remote.size_bytes() == 4096);
    CHECK(remote.isolation() == level);
    CHECK(remote.access() == lendable_access);
    CHECK(remote.slice().address() % 4096 == 0);
    CHECK(remote.remaining() > 20s);
    CHECK(remote.remaining() <= 27s);
    CHECK(p.server.lending().granted == 1);
    CHECK(p.server.lending().bytes_lent == 4096);

    local_mr mine = p.client.memory().allocate_zeroed(8);
    std::ranges::fill(mine.bytes(), std::byte{0x5a});
    p.rt.run(p.client.write(mine.slice(), remote.slice(4088, 8)));
    CHECK(p.rt.run(p.client.compare_swap(remote.slice(0, 8), 0, 42)) == 0);
    p.rt.run(p.client.read(mine.slice(), remote.slice(0, 8)));
    CHECK(mine.slice().as<std::uint64_t>()[0] == 42);

    p.rt.run(p.client.send_remote_mr(std::move(remote)));
    local_mr back = p.rt.run(p.server.receive_local_mr(5s));
    CHECK(back.size_bytes() == 4096);
    CHECK(back.slice().first(8).as<std::uint64_t>()[0] == 42);
    CHECK(std::ranges::all_of(back.slice().last(8).bytes(),
                              [](std::byte b) { return b == std::byte{0x5a}; }));
    CHECK(p.server.lending().open == 0);
    CHECK(p.server.lending().returned == 1);
    CHECK(p.client.lending().borrowed == 0);
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
  // All that the allocator has, but for what is kept.
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
      remote_mr remote = p.rt.run(p.client.receive_remote_mr(5s));
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
    CHECK(p.server.lending().open == 0);
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
  {
    loan never_taken = p.rt.run(p.server.send_local_mr(p.server.memory().allocate_zeroed(64)));
    loan taken = p.rt.run(p.server.send_local_mr(p.server.memory().allocate_zeroed(64)));
  }
  p.settle();
  CHECK(p.server.lending().revoked == 2);
  CHECK(p.server.memory().statistics().in_use_bytes == p.client.memory().statistics().in_use_bytes);
  CHECK(outcome_of(p.rt, p.client.receive_remote_mr(1ms)) == make_error_code(errc::timed_out));
  CHECK(p.client.is_open());
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

TEST_CASE("an access that was not granted breaks this connection alone", "[agent][device][R4]") {
  for (const isolation level : strengths()) {
    INFO(to_string(level));
    pair p{level};
    auto [other_client, other_server] =
        p.rt.run(when_all(p.rt.connect(p.door.local_endpoint()), p.door.accept()));
    const remote_mr remote = p.borrow(64, {.access = access::remote_read});
    local_mr mine = p.client.memory().allocate_zeroed(64);
    // By hand: our own side would refuse.
    const remote_mr_slice raw = remote_mr_slice::decode(remote.slice().encode());
    CHECK(outcome_of(p.rt, p.client.write(mine.slice(), raw)) ==
          make_error_code(wc_errc::remote_access));
    p.wait_for([&] { return !p.client.is_open() && !p.server.is_open(); });
    CHECK(p.client.why_lost().value().code == make_error_code(wc_errc::remote_access));
    CHECK(p.server.why_lost().has_value());
    CHECK(p.server.lending().open == 0);
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
        p.rt.run(when_all(p.rt.connect(p.door.local_endpoint()), p.door.accept()));
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

TEST_CASE("an answer that comes too late gives the memory back", "[agent][device][R5]") {
  for (const isolation level : strengths()) {
    pair p{level};
    CHECK(outcome_of(p.rt, p.client.request_remote_mr(64, {.timeout = 0ms})) ==
          make_error_code(errc::timed_out));
    p.wait_for([&] { return p.server.lending().granted == 1; });
    p.settle();
    CHECK(p.server.lending().returned == 1);
    CHECK(p.client.lending().borrowed == 0);
    CHECK(p.client.is_open());
  }
}

TEST_CASE("a wait for memory that is stopped loses none", "[agent][device][R3]") {
  pair p{lends(strengths().back())};
  CHECK(outcome_of(p.rt, p.server.receive_local_mr(0ms)) == make_error_code(errc::timed_out));
  CHECK(outcome_of(p.rt, p.client.receive_remote_mr(0ms)) == make_error_code(errc::timed_out));
  p.rt.run(p.client.send_remote_mr(p.borrow(100)));
  CHECK(p.server.lending().open == 1);  // It still counts for the peer.
  CHECK(p.rt.run(p.server.receive_local_mr()).size_bytes() == 100);
  CHECK(p.server.lending().open == 0);
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
  CHECK(p.rt.run(p.server.receive_local_mr(10s)).size_bytes() == 100);

  const loan lent = p.rt.run(p.server.send_local_mr(p.rt.memory().allocate_zeroed(200)));
  p.wait_for([&] { return p.client.leases().size() == 1; });
  p.rt.run(lose(happened, p.client.receive_remote_mr()));
  CHECK(p.rt.run(p.client.receive_remote_mr(10s)).size_bytes() == 200);
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
    p.rt.run(when_all(p.client.send_remote_mr(std::move(remote)), take_and_close(p.server)));
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
  CHECK(p.server.lending().open == 200);
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
      CHECK(p.rt.memory().statistics().in_use_bytes == 0);
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
  lending.spawn(lend_and_note(p.server, end));  // Its bind is posted.
  p.server.qp().abort({.code = errc::device_failed, .call = "test"});
  p.rt.run(lending.join());
  CHECK(end == errc::device_failed);
  CHECK(p.server.lending().open == 0);
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

TEST_CASE("the terms of a stream reach the peer's agent, before or after somebody asks",
          "[agent][device]") {
  pair p{connection_options{}};
  p.client.agent()->open_stream({.messages = 32, .buffer_bytes = 100, .message_bytes_max = 200});
  p.rt.run(p.server.agent()->stream_opened().wait());
  const stream_terms& terms = p.server.agent()->peer_stream();
  CHECK(terms.messages == 32);
  CHECK(terms.buffer_bytes == 100);
  CHECK(terms.message_bytes_max == 200);
  CHECK_FALSE(p.client.agent()->stream_opened().is_set());
}
