#include <cordma/queue/shared_receives.hpp>

#include "support/aborts.hpp"
#include "support/allocations.hpp"
#include "support/detached.hpp"
#include "support/device.hpp"
#include "support/held.hpp"
#include "support/loopback.hpp"
#include "support/outcome.hpp"
#include "support/skip.hpp"
#include "support/until.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

using namespace cordma;
using Catch::Matchers::Contains;
using test::failure_of;
using test::held;
using test::held_by;
using test::loopback;
using test::loopback_options;
using test::nothing;
using test::same_bytes;

namespace {

constexpr verbs::queue_pair_capabilities small{.send_wr_max = 32, .recv_wr_max = 8};
constexpr std::size_t size = 64;

/// A queue pair that takes its receives from a pool, whoever sends to it, and what keeps messages.
/// A receiver that is not ready breaks the sender at once.
class shared_pair final : public message_handler {
 public:
  shared_pair(loopback& link, shared_receives& pool, completion_queue_driver* of_sender = nullptr)
      : link_{link},
        pool_{pool},
        receiver{link.make_queue_pair(small, &pool)},
        sender{std::make_unique<queue_pair>(of_sender != nullptr ? *of_sender : link.driver,
                                            link.pd, small, link.port.message_max_bytes)} {
    test::connect(link.ctx, link.port, receiver->verbs(), sender->verbs().num());
    test::connect(link.ctx, link.port, sender->verbs(), receiver->verbs().num(), 12, 0);
  }
  void listen() { receiver->hand_messages_to(*this); }

  /// Tells whether all messages arrived; waits for their completions, in the end for the messages.
  bool send(unsigned count, unsigned seed) {
    const local_mr from = link_.pattern(size, seed);
    const std::size_t before = kept.size();
    for (unsigned n = 0; n < count; ++n) {
      const auto sent = link_.outcome(sender->send(from.slice()));
      if (!sent.has_value()) return false;
    }
    link_.run_until([&] { return kept.size() == before + count; });
    return true;
  }
  /// Tells whether all kept messages are what was sent with `seed`.
  bool holds_only(unsigned seed) {
    const local_mr sent = link_.pattern(size, seed);
    return std::ranges::all_of(kept, [&](std::uint32_t number) {
      return same_bytes(pool_.bytes(number).first(size), sent.bytes());
    });
  }
  void give_back_all() {
    for (const std::uint32_t number : kept) pool_.give_back(number);
    kept.clear();
  }

 private:
  void on_receive(std::uint32_t number, const ibv_wc& wc) noexcept override {
    CHECK(wc.status == IBV_WC_SUCCESS);
    kept.push_back(number);
  }
  bool on_room() noexcept override { return false; }
  void on_idle_awaited() noexcept override {}
  void on_shrink_wanted() noexcept override { ++asked; }
  void on_growth_possible() noexcept override {
    ++told;
    if (wanted != 0) wanted -= receiver->share()->want(wanted);
  }
  void on_failure() noexcept override { ++failures; }
  void on_gone() noexcept override { ++gone; }

  loopback& link_;
  shared_receives& pool_;

 public:
  std::vector<std::uint32_t> kept;  ///< numbers of buffers
  std::uint32_t wanted = 0;         ///< more credit, whenever it is told that there may be some
  unsigned asked = 0;               ///< to shrink
  unsigned told = 0;
  unsigned failures = 0;
  unsigned gone = 0;
  std::unique_ptr<queue_pair> receiver;
  std::unique_ptr<queue_pair> sender;
};

/// A pool, and as many pairs as a test wants.
struct shared_link {
  explicit shared_link(const shared_receives_options& options, loopback_options of_link = {})
      : link{with(of_link)}, pool{link.pd, link.allocator(verbs::access::local_write), options} {}
  static loopback_options with(loopback_options o) {
    o.connected = false;
    return o;
  }
  shared_pair& add(completion_queue_driver* of_sender = nullptr) {
    shared_pair& made = *pairs.emplace_back(std::make_unique<shared_pair>(link, pool, of_sender));
    made.listen();
    return made;
  }
  /// Uses every buffer of the pool at once.
  void check_whole() {
    REQUIRE(held_by(pool) == nothing);
    shared_pair p{link, pool};
    p.listen();
    REQUIRE(p.receiver->share()->try_grow(pool.buffers() - pool.share_min()));
    const bool sent = p.send(pool.buffers(), 99);
    REQUIRE(sent);
    std::ranges::sort(p.kept);
    CHECK(std::ranges::adjacent_find(p.kept) == p.kept.end());
    p.give_back_all();
  }

  loopback link;
  shared_receives pool;
  std::vector<std::unique_ptr<shared_pair>> pairs;
};

}  // namespace

TEST_CASE("messages of many queue pairs come in one pool's buffers, each told to its own",
          "[queue][device]") {
  shared_link s{{.buffers = 24, .buffer_bytes = size, .share_min = 8}};
  for (int n = 0; n < 3; ++n) s.add();
  for (unsigned round = 0; round < 10; ++round) {
    // Each pair sends all that was promised, and nobody gives back in between: no receive is
    // missing.
    for (unsigned n = 0; n < 3; ++n) {
      const bool sent = s.pairs[n]->send(8, n + 1);
      REQUIRE(sent);
    }
    for (unsigned n = 0; n < 3; ++n) {
      CHECK(s.pairs[n]->holds_only(n + 1));
      CHECK(held_by(*s.pairs[n]->receiver) == held{.receives_held = 8});
      s.pairs[n]->give_back_all();
      CHECK(held_by(*s.pairs[n]->receiver) == nothing);
    }
  }
  CHECK(held_by(s.pool) == held{.receive_credits = 24});
  CHECK(s.pool.queue_pairs() == 3);
  s.pairs.clear();
  CHECK(held_by(s.pool) == nothing);
  s.check_whole();
}

TEST_CASE("a queue pair that finds no shared buffers left is refused, with the way out",
          "[queue][device]") {
  shared_link s{{.buffers = 20, .buffer_bytes = size, .share_min = 8}};
  s.add();
  s.add();
  const unsigned room = s.link.driver.room();
  const failure f = failure_of([&] { s.link.make_queue_pair(small, &s.pool); });
  CHECK(f.code == errc::limit_exceeded);
  CHECK_THAT(f.to_string(), Contains("16 of 20") && Contains("2 queue pairs") &&
                                Contains("needs 8") && Contains("share more buffers"));
  CHECK(s.link.driver.room() == room);
  s.pairs.pop_back();
  s.add();
  CHECK(held_by(s.pool) == held{.receive_credits = 16});
}

TEST_CASE("a share grows as far as there are buffers, and shrinks to what is held",
          "[queue][device]") {
  shared_link s{{.buffers = 20, .buffer_bytes = size, .share_min = 2}};
  shared_pair& p = s.add();
  receive_share& share = *p.receiver->share();
  CHECK(share.credit() == 2);
  CHECK(share.try_grow(10));
  CHECK_FALSE(share.try_grow(9));
  CHECK_FALSE(share.try_grow(~0u));
  CHECK(share.try_grow(8));
  CHECK(held_by(s.pool) == held{.receive_credits = 20});
  const bool sent = p.send(5, 1);
  REQUIRE(sent);
  CHECK_FALSE(share.try_shrink_to(4));
  CHECK(share.credit() == 20);
  CHECK(share.try_shrink_to(5));
  CHECK(held_by(s.pool) == held{.receive_credits = 5});
  p.give_back_all();
  CHECK(share.try_shrink_to(2));
  s.pairs.clear();
  s.check_whole();
}

namespace {

/// A share that has more than it uses, and two that want more than is left.
struct three_shares {
  explicit three_shares(loopback_options of_link = {})
      : s{{.buffers = 32, .buffer_bytes = size, .share_min = 4}, of_link} {
    // 28 buffers are not for newcomers.
    REQUIRE(idle.receiver->share()->try_grow(16));
    want(first, 12);
    want(second, 2);
    CHECK(idle.asked == 1);
  }
  static void want(shared_pair& p, std::uint32_t most) {
    p.wanted = most;
    CHECK(p.receiver->share()->want(most) == 0);
  }
  void check_whole() {
    CHECK(s.pool.promised() <= 32);
    s.pairs.clear();
    s.check_whole();
  }

  shared_link s;
  shared_pair& idle = s.add();
  shared_pair& first = s.add();
  shared_pair& second = s.add();
};

}  // namespace

TEST_CASE("who wants more credit in vain is told once that there may be some, each in its turn",
          "[queue][device]") {
  manual_clock clock;  // The clock stands still: nobody is told because time has passed.
  three_shares all{{.clock = &clock}};
  auto& [s, idle, first, second] = all;
  SECTION("it shrinks to what it needs, and what is free is too little for the first") {
    CHECK(idle.receiver->share()->try_shrink_to(18));
    s.link.run(test::due_timers_fired());
    CHECK(second.wanted == 0);
    CHECK(first.told == 1);
    CHECK(first.wanted == 12);
  }
  SECTION("it shrinks to what it needs, and the first gets a part") {
    CHECK(idle.receiver->share()->try_shrink_to(16));
    s.link.run(test::due_timers_fired());
    CHECK(first.told == 1);
    CHECK(second.told == 1);
    CHECK(first.wanted == 8);
    CHECK(second.wanted == 2);
  }
  SECTION("it shrinks to the least, which is enough") {
    CHECK(idle.receiver->share()->try_shrink_to(4));
    s.link.run(test::due_timers_fired());
    CHECK(second.wanted == 0);
    CHECK(first.wanted == 0);
    CHECK(held_by(s.pool) == held{.receive_credits = 26});
  }
  SECTION("it goes") {
    s.pairs.erase(s.pairs.begin());
    s.link.run(test::due_timers_fired());
    CHECK(second.wanted == 0);
    CHECK(first.wanted == 0);
  }
}

TEST_CASE("who has more than it uses is asked for it, and the next in its place",
          "[queue][device]") {
  three_shares all;
  shared_link& s = all.s;
  shared_pair &idle = all.idle, &first = all.first, &second = all.second;
  SECTION("it does not answer, and the next is asked in its place") {
    REQUIRE(second.receiver->share()->try_grow(1));
    s.link.run_until([&] { return second.asked == 1; });
    CHECK(idle.asked == 1);
    CHECK(first.asked == 0);
  }
  SECTION("all it has is in messages that are kept, until they are given back") {
    // Asked, it says so.
    const bool sent = idle.send(18, 1);
    REQUIRE(sent);
    CHECK(idle.receiver->share()->try_shrink_to(20));
    s.link.run_until([&] { return first.told > 0; });
    CHECK(idle.asked == 1);
    idle.give_back_all();
    s.link.run_until([&] { return idle.asked == 2; });
  }
  all.check_whole();
}

TEST_CASE("of two who want more, one that does not need what it has gives it to the other",
          "[queue][device]") {
  shared_link s{{.buffers = 32, .buffer_bytes = size, .share_min = 4}};
  shared_pair& first = s.add();
  shared_pair& second = s.add();
  REQUIRE(first.receiver->share()->try_grow(20));
  first.wanted = 24;
  CHECK(first.receiver->share()->want(24) == 0);
  CHECK(first.asked == 0);
  second.wanted = 4;
  CHECK(second.receiver->share()->want(4) == 0);
  s.link.run_until([&] { return first.asked == 1; });
  CHECK(second.asked == 0);
  s.pairs.clear();
  s.check_whole();
}

TEST_CASE("a message outlives its queue pair, and keeps its credit with it", "[queue][device]") {
  shared_link s{{.buffers = 8, .buffer_bytes = size, .share_min = 4}};
  shared_pair& p = s.add();
  const bool sent = p.send(3, 7);
  REQUIRE(sent);
  p.receiver.reset();
  CHECK(p.failures == 1);
  CHECK(p.gone == 1);
  CHECK(s.pool.queue_pairs() == 0);
  CHECK(held_by(s.pool) == held{.receive_credits = 3});
  {
    // The other queue pairs get other buffers.
    shared_pair q{s.link, s.pool};
    q.listen();
    CHECK_FALSE(q.receiver->share()->try_grow(2));
    for (int round = 0; round < 5; ++round) {
      const bool more = q.send(4, 8);
      REQUIRE(more);
      CHECK(q.holds_only(8));
      q.give_back_all();
    }
    CHECK_THROWS_WITH(s.link.make_queue_pair(small, &s.pool), Contains("7 of 8"));
    CHECK(p.holds_only(7));
    p.give_back_all();
    CHECK(held_by(s.pool) == held{.receive_credits = 4});
    CHECK(q.receiver->share()->try_grow(4));
  }
  s.pairs.clear();
  s.check_whole();
}

TEST_CASE("a peer that goes beyond its credit is cut off, and keeps none of the others' buffers",
          "[queue][device]") {
  shared_link s{{.buffers = 16, .buffer_bytes = size, .share_min = 4}};
  shared_pair& greedy = s.add();
  shared_pair& honest = s.add();
  const bool sent = greedy.send(4, 1);
  REQUIRE(sent);
  const local_mr from = s.link.pattern(size, 1);
  static_cast<void>(s.link.outcome(greedy.sender->send(from.slice())));
  s.link.run_until([&] { return greedy.receiver->has_failed(); });
  CHECK(greedy.receiver->failure_reason().code == errc::bad_frame);
  CHECK(greedy.kept.size() == 4);
  CHECK(held_by(*greedy.receiver) == held{.receives_held = 4});
  for (int round = 0; round < 5; ++round) {
    const bool more = honest.send(4, 2);
    REQUIRE(more);
    CHECK(greedy.holds_only(1));
    honest.give_back_all();
  }
  greedy.give_back_all();
  s.pairs.clear();
  s.check_whole();
}

TEST_CASE("what no handler waits for is not kept", "[queue][device]") {
  shared_link s{{.buffers = 4, .buffer_bytes = size, .share_min = 4}};
  {
    shared_pair p{s.link, s.pool};
    CHECK(s.link.outcome(p.receiver->next_message()).failure().code == errc::refused);
    const local_mr from = s.link.pattern(size);
    static_cast<void>(s.link.outcome(p.sender->send(from.slice())));
    s.link.run_until([&] { return p.receiver->has_failed(); });
    CHECK(p.receiver->failure_reason().code == errc::refused);
    CHECK(held_by(*p.receiver) == nothing);
  }
  s.check_whole();
}

TEST_CASE(
    "a message that is longer than a shared buffer breaks its queue pair, and loses no buffer",
    "[queue][device]") {
  shared_link s{{.buffers = 4, .buffer_bytes = size, .share_min = 2}};
  const local_mr from = s.link.pattern(size + 1);
  for (int round = 0; round < 6; ++round) {
    shared_pair p{s.link, s.pool};
    p.listen();
    CHECK(s.link.outcome(p.sender->send(from.slice())).has_failure());
    s.link.run_until([&] { return p.receiver->has_failed(); });
    CHECK(p.kept.empty());
    CHECK(p.failures == 1);
  }
  s.check_whole();
}

TEST_CASE("messages that nobody has reaped when their queue pair goes are still told",
          "[queue][device]") {
  const auto mode = GENERATE(completion_mode::manual, completion_mode::event);
  shared_link s{{.buffers = 8, .buffer_bytes = size, .share_min = 4}, {.cq = {.mode = mode}}};
  completion_queue_driver of_senders{s.link.executor, s.link.ctx};
  {
    shared_pair p{s.link, s.pool, &of_senders};
    p.listen();
    const local_mr from = s.link.pattern(size, 3);
    for (int n = 0; n < 3; ++n) static_cast<void>(s.link.run(p.sender->send(from.slice())));
    if (mode == completion_mode::manual) CHECK(p.kept.empty());
    p.receiver.reset();
    CHECK(p.kept.size() == 3);
    CHECK(p.holds_only(3));
    CHECK(held_by(s.pool) == held{.receive_credits = 3});
    p.give_back_all();
  }
  CHECK(held_by(s.pool) == nothing);
}

TEST_CASE("a device that tells what a queue pair took leaves the shared queue as it is",
          "[queue][device]") {
  if (test::is_rxe()) CORDMA_SKIP("rxe raises no IBV_EVENT_QP_LAST_WQE_REACHED");
  shared_link s{{.buffers = 4, .buffer_bytes = size, .share_min = 2}};
  const ibv_srq* const before = s.pool.verbs().native_handle();
  shared_pair& p = s.add();
  p.receiver->abort({.code = errc::closed, .call = "test"});
  s.link.run_until([&] { return p.receiver->last_receive_event().is_set(); });
  CHECK(p.receiver->failure_reason().code == errc::closed);
  s.pairs.clear();
  s.add();
  CHECK(s.pool.verbs().native_handle() == before);
  s.pairs.clear();
  s.check_whole();
}

TEST_CASE("after an end of which the device told nothing, an idle pool makes its queue anew",
          "[queue][device]") {
  shared_link s{{.buffers = 8, .buffer_bytes = size, .share_min = 4}};
  const ibv_srq* const before = s.pool.verbs().native_handle();
  shared_pair& p = s.add();
  const bool sent = p.send(2, 5);
  REQUIRE(sent);
  p.receiver.reset();  // The receiver ends before the test has looked for events.
  shared_pair& q = s.add();
  CHECK(s.pool.verbs().native_handle() != before);
  const bool more = q.send(4, 6);
  REQUIRE(more);
  CHECK(p.holds_only(5));
  CHECK(q.holds_only(6));
  p.give_back_all();
  q.give_back_all();
  s.pairs.clear();
  s.check_whole();
}

TEST_CASE("a completion queue has room for all of a pool, once", "[queue][device]") {
  shared_link s{{.buffers = 512, .buffer_bytes = size, .share_min = 4}, {.cq = {.depth = 2048}}};
  const unsigned room = s.link.driver.room();
  CHECK(s.link.driver.cqes_for(&s.pool) == 512);
  std::unique_ptr<queue_pair> one = s.link.make_queue_pair(small, &s.pool);
  const unsigned of_sends = one->verbs().capabilities().send_wr_max;
  CHECK(s.link.driver.cqes_for(&s.pool) == 0);
  CHECK(s.link.driver.room() == room - 512 - of_sends);
  std::unique_ptr<queue_pair> other = s.link.make_queue_pair(small, &s.pool);
  CHECK(s.link.driver.room() == room - 512 - 2 * of_sends);
  one.reset();
  other.reset();
  CHECK(s.link.driver.room() == room);

  shared_receives too_large{
      s.link.pd, s.link.allocator(verbs::access::local_write), {.buffers = room + 1}};
  const failure f = failure_of([&] { s.link.make_queue_pair(small, &too_large); });
  CHECK(f.code == errc::limit_exceeded);
  CHECK(held_by(too_large) == nothing);
  CHECK(s.link.driver.room() == room);
}

TEST_CASE("shared receives are refused for options, and for another domain's queue pair",
          "[queue][device]") {
  loopback link;
  mr_allocator& memory = link.allocator(verbs::access::local_write);
  const auto refusal_of = [&](const shared_receives_options& o) {
    const failure f = failure_of([&] { shared_receives{link.pd, memory, o}; });
    CHECK(f.code == errc::limit_exceeded);
    return f.to_string();
  };
  CHECK_THAT(refusal_of({.buffers = 0}), Contains("wr_max 0"));
  CHECK_THAT(refusal_of({.buffers = link.ctx.limits().srq_wr_max + 1}), Contains("exceeds"));
  CHECK_THAT(refusal_of({.buffer_bytes = 0}), Contains("buffer_bytes 0"));
  CHECK_THAT(refusal_of({.buffers = 8, .share_min = 9}), Contains("share_min 9"));

  verbs::protection_domain other{link.ctx};
  CHECK(failure_of([&] { shared_receives{other, memory}; }).code == errc::wrong_protection_domain);
  shared_receives pool{link.pd, memory, {.buffers = 8}};
  const failure f = failure_of(
      [&] { queue_pair{link.driver, other, small, link.port.message_max_bytes, &pool}; });
  CHECK(f.code == errc::wrong_protection_domain);
  CHECK(held_by(pool) == nothing);
}

TEST_CASE("a shared buffer is given back once", "[queue][device]") {
  // All made there: a fork takes the locks of every arena there is, which ThreadSanitizer has no
  // room for.
  const support::death end = support::run_in_child([] {
    shared_link s{{.buffers = 8, .buffer_bytes = size}};
    s.pool.give_back(3);
  });
  CHECK(end.aborted);
  CHECK_THAT(end.text, Contains("given back twice"));
}

TEST_CASE("a message in a shared buffer costs no allocation", "[queue][device]") {
  shared_link s{{.buffers = 16, .buffer_bytes = size, .share_min = 8}};
  shared_pair& p = s.add();
  s.add();
  p.kept.reserve(16);
  std::array<std::byte, 8> bytes{};
  const auto pass = [&](unsigned count) {
    for (unsigned n = 0; n < count; ++n) {
      REQUIRE(test::post_detached(*p.sender, send(test::unregistered(bytes))));
      const time_point deadline = s.link.executor.now() + std::chrono::seconds{20};
      while (p.kept.empty() || !p.sender->sends().is_idle()) {
        s.link.driver.reap();
        REQUIRE(s.link.executor.now() < deadline);
      }
      p.give_back_all();
    }
  };
  pass(64);
  if (!support::counts_allocations()) CORDMA_SKIP("allocations are not counted under sanitizers");
  const std::uint64_t before = support::thread_allocation_count();
  pass(64);
  CHECK(support::thread_allocation_count() == before);
}
