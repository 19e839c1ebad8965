// A peer that does not keep to the agents' protocol gets errors, and nothing else.
#include "support/hostile_peer.hpp"
#include "support/held.hpp"

#include "support/device.hpp"
#include "support/manual_executor.hpp"
#include "support/sizes.hpp"
#include "support/skip.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <random>

using namespace cordma;
using namespace std::chrono_literals;
using agent_protocol::frame;
using agent_protocol::kind;
using support::started;
using test::held_by;
using test::mib;
using test::nothing;
using verbs::access;

namespace {

constexpr std::uint64_t huge = ~std::uint64_t{0};

agent_options lends() {
  agent_options o;
  o.lending.bytes_max = mib;
  o.lending.leases_max = 40;
  o.lending.isolation_min = test::is_rxe() ? isolation::exact_registered : isolation::exact;
  o.offers_max = 8;
  return o;
}

/// A victim that lends, its hostile peer, and a second victim with a peer of its own. That pair
/// keeps to the protocol, and must notice nothing.
struct siege {
  explicit siege(const agent_options& options = lends(),
                 std::uint32_t receives = test::hostile_peer::receives)
      : in_use_at_first{in_use()} {
    v.emplace(world, options);
    peer.emplace(world, *v, receives);
    other.emplace(world, lends());
    other_peer.emplace(world, *other);
    iterate();
    in_use_idle = in_use();
  }
  ~siege() {
    // All lent memory is back, whatever the peer did; and the other connection works.
    CHECK_FALSE(other->is_cut_off());
    other_peer->say(request(64));
    wait_for([&] { return !other_peer->heard.empty(); });
    CHECK(other_peer->heard.front().kind == kind::granted);
    end();
    CHECK(held_by(v->self()) == nothing);
    other->cut_off(errc::closed);
    iterate();
    peer.reset();
    other_peer.reset();
    v.reset();
    other.reset();
    CHECK(in_use() == in_use_at_first);
  }

  [[nodiscard]] std::size_t in_use() const { return held_by(world.memory).memory_bytes; }
  frame request(std::uint64_t bytes) {
    return {.kind = kind::request,
            .tag = ++tag,
            .length = bytes,
            .access = lending_policy::lendable_access,
            .duration = 10s};
  }
  /// Real devices take a while.
  void wait_for(const std::function<bool()>& done) {
    const auto deadline = std::chrono::steady_clock::now() + 5s;
    while (!done()) {
      world.iterate();
      peer->listen();
      other_peer->listen();
      if (std::chrono::steady_clock::now() > deadline) throw std::runtime_error{"never came"};
    }
  }
  void iterate() {
    for (int idle = 0; idle < 3;) {
      const std::size_t did = world.iterate() + peer->listen() + other_peer->listen();
      idle = did == 0 ? idle + 1 : 0;
    }
  }
  void pass(duration time) {
    iterate();
    world.clock.advance(time);
    iterate();
  }
  /// The first frame of that kind that the victim says from now on.
  frame answer(kind k) {
    const auto is = [k](const frame& f) { return f.kind == k; };
    wait_for([&] { return std::ranges::any_of(peer->heard, is) || v->is_cut_off(); });
    const auto found = std::ranges::find_if(peer->heard, is);
    REQUIRE(found != peer->heard.end());
    const frame f = *found;
    peer->heard.erase(found);
    return f;
  }
  frame grant(std::uint64_t bytes = 64) {
    peer->say(request(bytes));
    return answer(kind::granted);
  }
  /// Asks a question, and gives the status of its refusal.
  std::uint32_t refusal(const frame& question) {
    peer->say(question);
    const frame f = answer(kind::refused);
    CHECK(f.tag == question.tag);
    return f.status;
  }
  void cut_off_by(errc why) {
    wait_for([&] { return v->is_cut_off(); });
    CHECK(v->reason() == make_error_code(why));
  }
  /// Checks that the victim still answers: the victim believed nothing of what the peer said.
  void goes_on() {
    static_cast<void>(grant());
    CHECK_FALSE(v->is_cut_off());
  }
  void end() {
    if (!v->is_cut_off()) v->cut_off(errc::closed);
    iterate();
  }

  test::agent_world world;
  std::size_t in_use_at_first;
  std::size_t in_use_idle = 0;
  std::optional<test::victim> v;
  std::optional<test::hostile_peer> peer;
  std::optional<test::victim> other;
  std::optional<test::hostile_peer> other_peer;
  std::uint64_t tag = 0;
};

std::uint32_t number(errc e) { return std::uint32_t(e); }

/// Gives an honest owner's answer.
frame granted_by(test::hostile_peer& peer, const frame& request) {
  return {.kind = kind::granted,
          .tag = request.tag,
          .lease = 7,
          .length = 64,
          .address = peer.address(),
          .rkey = peer.rkey(),
          .access = request.access,
          .duration = request.duration,
          .isolation = 3};
}

struct borrowed {
  remote_mr memory;
  frame request;
};
borrowed borrow(siege& s, remote_mr_request terms = {}) {
  started<task<remote_mr>> asked{s.world.executor, s.v->self().borrows.request(64, terms)};
  const frame request = s.answer(kind::request);
  s.peer->say(granted_by(*s.peer, request));
  s.wait_for([&] { return asked.has_ended(); });
  return {(*asked).take(), request};
}

}  // namespace

TEST_CASE("frames of random bytes end the connection", "[agent][device][R4]") {
  std::mt19937_64 random{1};
  for (int n = 0; n < 20; ++n) {
    siege s;
    static_cast<void>(s.grant(4096));
    agent_protocol::frame_bytes_t message;
    std::ranges::generate(message, [&] { return std::byte(random()); });
    s.peer->say(message);
    s.cut_off_by(errc::bad_frame);
  }
}

TEST_CASE("a frame with one bit turned is refused, ignored, or ends the connection",
          "[agent][device][R4]") {
  siege* s = new siege;
  unsigned ends = 0;
  for (unsigned bit = 0; bit < 8 * agent_protocol::frame_bytes; ++bit) {
    if (s->v->is_cut_off()) {
      ++ends;
      delete s;
      s = new siege;
    }
    agent_protocol::frame_bytes_t message = agent_protocol::encode(s->request(64));
    std::uint32_t taken = s->peer->taken;
    std::memcpy(message.data() + 4, &taken, sizeof taken);
    message[bit / 8] ^= std::byte(1u << bit % 8);
    s->peer->say(message);
    s->iterate();
  }
  CHECK(ends > 100);
  delete s;
}

TEST_CASE("a frame that is too short or too long ends the connection", "[agent][device][R4]") {
  for (const std::size_t size : {0u, 1u, 32u, 63u, 65u, 128u}) {
    INFO(size);
    siege s;
    static_cast<void>(s.grant());
    const frame f = s.request(64);
    const agent_protocol::frame_bytes_t whole = agent_protocol::encode(f);
    std::array<std::byte, 128> message{};
    std::ranges::copy(whole, message.begin());
    s.peer->say(std::span{message}.first(size));
    // The device refuses those that are longer than the buffer.
    s.cut_off_by(size > 64 ? errc::disconnected : errc::bad_frame);
  }
}

TEST_CASE("a WRITE to the control queue pair ends the connection", "[agent][device][R4]") {
  siege s;
  s.peer->say(std::span<const std::byte>{}, IBV_WR_RDMA_WRITE_WITH_IMM);
  s.wait_for([&] {
    return s.v->is_cut_off() ||
           s.v->self().control().verbs().query_state() == verbs::queue_pair_state::error;
  });
}

TEST_CASE("a request that is replayed is one more request", "[agent][device][R4]") {
  siege s;
  const frame f = s.request(64);
  s.peer->say(f);
  const frame first = s.answer(kind::granted);
  s.peer->say(f);
  const frame second = s.answer(kind::granted);
  CHECK(first.lease != second.lease);
  CHECK(first.rkey != second.rkey);
  CHECK(held_by(s.v->self()).leases == 2);
}

TEST_CASE("a lease that was returned is not returned, renewed or handed over again",
          "[agent][device][R4][R7]") {
  siege s;
  const frame g = s.grant();
  s.peer->say({.kind = kind::give_back, .lease = g.lease});
  s.wait_for([&] { return s.v->self().context.counters.open == 0; });
  for (int n = 0; n < 3; ++n) s.peer->say({.kind = kind::give_back, .lease = g.lease});
  CHECK(s.refusal({.kind = kind::renew, .tag = g.tag, .lease = g.lease, .duration = 1s}) ==
        number(errc::lease_ended));
  CHECK(s.refusal({.kind = kind::hand_over, .tag = g.tag, .lease = g.lease}) ==
        number(errc::lease_ended));
  CHECK(s.v->self().context.counters.returned == 1);
  // The lease's number is not used again, though its place is.
  CHECK(s.grant().lease != g.lease);
}

TEST_CASE("numbers that nobody gave are nobody's", "[agent][device][R4]") {
  siege s;
  const frame g = s.grant();
  for (const std::uint64_t lease :
       {std::uint64_t{1}, g.lease + 1, g.lease + (std::uint64_t{1} << 32), huge}) {
    s.peer->say({.kind = kind::give_back, .lease = lease});
    s.peer->say({.kind = kind::accept, .tag = 1, .lease = lease});
    s.peer->say({.kind = kind::revoke, .lease = lease});
    s.peer->say({.kind = kind::revoke, .tag = lease, .lease = lease});
    CHECK(s.refusal({.kind = kind::renew, .tag = g.tag, .lease = lease, .duration = 1s}) ==
          number(errc::lease_ended));
    CHECK(s.refusal({.kind = kind::hand_over, .tag = g.tag, .lease = lease}) ==
          number(errc::lease_ended));
  }
  // The lease was granted for another tag.
  CHECK(s.refusal({.kind = kind::renew, .tag = g.tag + 1, .lease = g.lease, .duration = 1s}) ==
        number(errc::lease_ended));
  CHECK(held_by(s.v->self()).leases == 1);
  s.goes_on();
}

TEST_CASE("sizes of 0 and of 2^64-1 are refused", "[agent][device][R4]") {
  siege s;
  for (const std::uint64_t size : {huge, huge - 63, huge / 2, std::uint64_t{mib} + 1})
    CHECK(s.refusal(s.request(size)) == number(errc::limit_exceeded));
  static_cast<void>(s.grant(mib));
  CHECK(s.refusal(s.request(1)) == number(errc::limit_exceeded));
  CHECK(s.refusal(s.request(huge)) == number(errc::limit_exceeded));
  CHECK(held_by(s.v->self()).bytes_lent == mib);
  s.peer->say(s.request(0));
  s.cut_off_by(errc::bad_frame);
}

TEST_CASE("an alignment counts as what it costs", "[agent][device][R4][R8]") {
  siege s;
  frame f = s.request(1);
  f.alignment_log2 = 21;
  CHECK(s.refusal(f) == number(errc::limit_exceeded));
  const std::size_t registered = s.world.memory.statistics().registered_bytes;
  for (int n = 0; n < 20; ++n) {
    f = s.request(1);
    f.alignment_log2 = 19;
    s.peer->say(f);
    s.iterate();
  }
  CHECK(held_by(s.v->self()).leases == 2);
  CHECK(s.world.memory.statistics().registered_bytes <= registered + 16 * mib);
}

TEST_CASE("answers to what was not asked end the connection", "[agent][device][R4]") {
  for (const frame& f : {frame{.kind = kind::granted,
                               .tag = 1,
                               .lease = 1,
                               .length = 64,
                               .address = 4096,
                               .access = lending_policy::lendable_access,
                               .duration = 1s,
                               .isolation = 3},
                         frame{.kind = kind::refused, .tag = 1, .status = 1},
                         frame{.kind = kind::renewed, .tag = 1, .duration = 1s},
                         frame{.kind = kind::handed_over, .tag = 1}}) {
    for (const bool has_question : {false, true}) {
      siege s;
      std::optional<started<task<remote_mr>>> asked;
      if (has_question) {
        asked.emplace(s.world.executor, s.v->self().borrows.request(64, {}));
        static_cast<void>(s.answer(kind::request));
      }
      s.peer->say(f);
      s.cut_off_by(errc::bad_frame);
      s.iterate();
      CHECK((!asked || asked->has_ended()));
    }
  }
}

TEST_CASE("terms that are not those that were asked for end the connection",
          "[agent][device][R4]") {
  const auto granted = [](const frame& q) {
    return frame{.kind = kind::granted,
                 .tag = q.tag,
                 .lease = 7,
                 .length = q.length,
                 .address = 1 << 21,
                 .access = q.access,
                 .duration = q.duration,
                 .isolation = 3};
  };
  using change = void (*)(frame&);
  for (const change lie :
       {change{[](frame& f) { ++f.length; }}, change{[](frame& f) { --f.length; }},
        change{[](frame& f) {
          f.length = huge;
          f.address = 0;
        }},
        change{[](frame& f) { f.length = 0; }}, change{[](frame& f) { f.address += 1; }},
        change{[](frame& f) { f.address = huge - 10; }},
        change{[](frame& f) { f.duration += 1us; }},
        change{[](frame& f) { f.access = lending_policy::lendable_access; }},
        change{[](frame& f) { f.isolation = 0; }}, change{[](frame& f) {
          f.kind = kind::renewed;
          f = {.kind = f.kind, .tag = f.tag, .duration = f.duration};
        }},
        change{[](frame& f) { ++f.tag; }}}) {
    siege s;
    started<task<remote_mr>> asked{
        s.world.executor, s.v->self().borrows.request(64, {.access = access::remote_read})};
    frame f = granted(s.answer(kind::request));
    lie(f);
    s.peer->say(f);
    s.cut_off_by(errc::bad_frame);
    s.iterate();
    REQUIRE(asked.has_ended());
    CHECK((*asked).take_result().has_failure());
  }
}

TEST_CASE("a question is answered once", "[agent][device][R4]") {
  siege s;
  started<task<remote_mr>> first{s.world.executor, s.v->self().borrows.request(64, {})};
  started<task<remote_mr>> second{s.world.executor, s.v->self().borrows.request(64, {})};
  const frame q = s.answer(kind::request);
  s.peer->say({.kind = kind::refused, .tag = q.tag, .status = 1});
  s.iterate();
  CHECK_FALSE(s.v->is_cut_off());
  s.peer->say({.kind = kind::refused, .tag = q.tag, .status = 1});
  s.cut_off_by(errc::bad_frame);
  s.iterate();
  CHECK(first.has_ended());
  CHECK(second.has_ended());
}

TEST_CASE("credits for what was not sent end the connection", "[agent][device][R4]") {
  for (const std::uint32_t lie : {1u, 32u, 0x8000'0000u, 0xffff'ffffu}) {
    siege s;
    static_cast<void>(s.grant());
    s.peer->say({.kind = kind::credit});
    s.peer->say({.kind = kind::credit}, lie);
    s.cut_off_by(errc::bad_frame);
  }
}

TEST_CASE("a peer that takes and never says so is answered no more, and ends with its leases",
          "[agent][device][R4]") {
  siege s;
  for (int n = 0; n < 200; ++n) {
    if (s.v->control().posted_recvs() == 0) break;
    frame f = s.request(huge);
    s.peer->say(f, 0u - s.peer->taken);
    s.iterate();
  }
  // The victim has no more receives than it has answers to give.
  CHECK(s.v->control().posted_recvs() < 2);
  CHECK(s.peer->taken <= agent_protocol::credits);
  CHECK_FALSE(s.v->is_cut_off());
}

TEST_CASE("a peer that says it took what it did not gets no more of our memory",
          "[agent][device][R4]") {
  if (!test::is_soft()) CORDMA_SKIP("the device may give up before");
  siege s{lends(), 1};
  s.peer->posts_again = false;
  const std::uint32_t frames = 1000;
  for (std::uint32_t n = 0; n < frames && !s.v->is_cut_off(); ++n) {
    s.peer->taken = n;
    s.peer->say(s.request(huge));
    s.wait_for([&] { return s.v->is_cut_off() || s.v->self().context.counters.refused == n + 1; });
  }
  // The victim refuses as many requests as its queue has room for. The next request says that the
  // peer took a frame that was not sent.
  CHECK(s.v->self().context.counters.refused <= 2 * agent_protocol::credits + 1);
  s.cut_off_by(errc::bad_frame);
}

TEST_CASE("a flood of requests gets no more than the policy has", "[agent][device][R4][R8]") {
  siege s;
  for (int n = 0; n < 5000; ++n) {
    s.peer->say(s.request(n % 3 == 0 ? 64 : n % 3 == 1 ? huge : mib / 8));
    if (n % 8 == 7) s.iterate();
    REQUIRE(s.v->self().context.counters.open <= 40);
    REQUIRE(s.v->self().context.counters.bytes_lent <= mib);
  }
  s.iterate();
  CHECK_FALSE(s.v->is_cut_off());
  s.pass(61s);  // The peer returns nothing: grace is for that.
  s.pass(2s);
  s.wait_for([&] { return s.v->self().context.counters.open == 0; });
  CHECK(s.in_use() == s.in_use_idle + s.v->self().context.counters.bytes_kept);
}

TEST_CASE("a flood of offers and revocations by a peer that gives no credit is bounded",
          "[agent][device][R4]") {
  siege s;
  for (std::uint64_t n = 1; n <= 3000 && !s.v->is_cut_off(); ++n) {
    const std::uint32_t never = 0u - s.peer->taken;
    s.peer->say({.kind = kind::offer,
                 .lease = n,
                 .length = 64,
                 .address = 4096,
                 .access = lending_policy::lendable_access,
                 .duration = 10s,
                 .isolation = 3},
                never);
    s.peer->say({.kind = kind::revoke, .lease = n}, never);
    s.iterate();
    if (s.v->control().posted_recvs() < 4) break;
  }
  CHECK(s.v->self().context.counters.borrowed <= 200);
}

TEST_CASE("what was not granted is not reached, and neither is what was given back",
          "[agent][device][R4b][R7]") {
  struct reach {
    std::int64_t from;
    std::uint32_t length;
    bool after_return;
  };
  for (const reach r : {reach{1, 64, false}, reach{-1, 64, false}, reach{0, 65, false},
                        reach{4096, 64, false}, reach{0, 64, true}}) {
    for (const ibv_wr_opcode how : {IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE}) {
      siege s;
      std::vector<local_mr> around;
      for (int n = 0; n < 100; ++n) around.push_back(s.world.memory.allocate_zeroed(64));
      const frame g = s.grant(64);
      if (r.after_return) {
        s.peer->say({.kind = kind::give_back, .lease = g.lease});
        s.wait_for([&] { return s.v->self().context.counters.open == 0; });
        around.push_back(s.world.memory.allocate_zeroed(64));
      }
      for (local_mr& one : around) std::ranges::fill(one.bytes(), std::byte{0xa5});
      std::ranges::fill(s.peer->landing(), std::byte{0x3c});
      s.peer->reach(how, g.address + std::uint64_t(r.from), r.length, g.rkey);
      s.wait_for([&] { return s.peer->reached.has_value(); });
      CHECK(*s.peer->reached == IBV_WC_REM_ACCESS_ERR);
      for (const local_mr& one : around)
        REQUIRE(std::ranges::count(one.bytes(), std::byte{0xa5}) == 64);
      CHECK(std::ranges::count(s.peer->landing(), std::byte{0x3c}) == 4096);
    }
  }
}

TEST_CASE("an acceptance of what is not offered yet changes nothing", "[agent][device][R4]") {
  siege s;
  // A number that the next loan will have: places and generations can be guessed.
  const frame g = s.grant();
  s.peer->say({.kind = kind::give_back, .lease = g.lease});
  s.wait_for([&] { return s.v->self().context.counters.open == 0; });
  started<task<loan>> lending{s.world.executor,
                              s.v->self().lends.lend(s.world.memory.allocate_zeroed(64), {})};
  s.peer->say({.kind = kind::accept, .tag = 99, .lease = g.lease + (std::uint64_t{1} << 32)});
  const frame offer = s.answer(kind::offer);  // `listen` decodes it: it has no tag.
  CHECK(offer.lease == g.lease + (std::uint64_t{1} << 32));
  s.iterate();
  REQUIRE(lending.has_ended());
  loan l = (*lending).take();
}

TEST_CASE("renewing ends when the connection does, though the lease was on its way back",
          "[agent][device][R2][R4]") {
  siege s;
  auto [memory, q] = borrow(s);
  local_mr mine = s.world.memory.allocate_zeroed(64);
  started<task<>> renewal{s.world.executor, memory.renew(5s)};
  static_cast<void>(s.answer(kind::renew));
  // Used, revoked while the renewal is not answered, and cut off before the flush has ended.
  static_cast<void>(s.v->data().post(cordma::write(mine.slice(), memory.slice())));
  s.peer->say({.kind = kind::revoke, .tag = q.tag, .lease = 7});
  s.wait_for(
      [&] { return s.world.executor.run_ready() + s.v->self().control().driver().reap() > 0; });
  s.world.executor.run_ready();
  s.v->cut_off(errc::closed);
  s.iterate();
  REQUIRE(renewal.has_ended());
  CHECK((*renewal).take_result().has_failure());
}

TEST_CASE("a renewal that the owner does not answer times out", "[agent][device][R2]") {
  siege s;
  auto [memory, q] = borrow(s, {.lease = 60s});
  started<task<>> renewal{s.world.executor, memory.renew(30s)};
  s.iterate();
  s.pass(6s);  // agent_options::request_timeout is 5 s.
  CHECK(renewal.has_ended());
  if (renewal.has_ended()) {
    const auto outcome = (*renewal).take_result();
    REQUIRE(outcome.has_failure());
    CHECK(outcome.failure().code == make_error_code(errc::timed_out));
  }
  s.end();
}

TEST_CASE("a renewal of what its owner takes back fails", "[agent][device][R2]") {
  siege s;
  auto [memory, q] = borrow(s, {.lease = 60s});
  started<task<>> renewal{s.world.executor, memory.renew(30s)};
  static_cast<void>(s.answer(kind::renew));
  s.peer->say({.kind = kind::revoke, .tag = q.tag, .lease = 7});
  static_cast<void>(s.answer(kind::give_back));
  s.peer->say({.kind = kind::renewed, .tag = q.tag, .duration = 30s});
  s.wait_for([&] { return renewal.has_ended(); });
  CHECK((*renewal).take_result().has_failure());
}

TEST_CASE("what waits for its turn to renew ends after its agent is gone",
          "[agent][device][R2][R4]") {
  test::agent_world world;
  auto v = std::make_unique<test::victim>(world, lends());
  auto peer = std::make_unique<test::hostile_peer>(world, *v);
  const auto iterate = [&] {
    for (int n = 0; n < 50; ++n) {
      world.iterate();
      if (peer) peer->listen();
    }
  };
  const auto wait_for_frame = [&] {
    for (int n = 0; n < 100'000 && peer->heard.empty(); ++n) iterate();
    REQUIRE_FALSE(peer->heard.empty());
    const frame f = peer->heard.front();
    peer->heard.clear();
    return f;
  };
  started<task<remote_mr>> asked{world.executor, v->self().borrows.request(64, {})};
  const frame q = wait_for_frame();
  peer->say(granted_by(*peer, q));
  while (!asked.has_ended()) iterate();
  remote_mr memory = (*asked).take();
  started<task<>> first{world.executor, memory.renew(5s)};
  started<task<>> second{world.executor, memory.renew(5s)};
  static_cast<void>(wait_for_frame());
  v->cut_off(errc::closed);
  v.reset();  // The waiting tasks have not had their turn yet.
  iterate();
  REQUIRE(first.has_ended());
  REQUIRE(second.has_ended());
  CHECK((*first).take_result().has_failure());
  CHECK((*second).take_result().has_failure());
}
