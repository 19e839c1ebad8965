// Tasks leave the line for messages just as it moves: each message goes to the next task.
#include "request/queue_pair.hpp"

#include <cordma/messages/message_stream.hpp>

#include <cordma/io/wait_until.hpp>

#include <support/held.hpp>
#include <support/placed_messages.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <optional>
#include <vector>

using namespace cordma;
using namespace test::streams;

namespace {

/// Shows by a WRITE that everything which side `a` has sent is there, and not polled for.
struct mark {
  explicit mark(stepped_pair& of)
      : p{of},
        from{p.rt.memory().allocate_zeroed(1)},
        to{p.rt.memory(test::all_access).allocate_zeroed(1)} {
    from.bytes()[0] = std::byte{1};
  }
  void pass() {
    const auto marking = p.a.connection().post(write(from.slice(), to.remote_slice()));
    const volatile std::byte& seen = to.bytes()[0];
    p.rt.run(wait_until(p.rt.executor(), [&] { return seen == std::byte{1}; }));
  }
  stepped_pair& p;
  local_mr from, to;
};

}  // namespace

TEST_CASE("a message whose task leaves goes to the next in line, before a large one behind it",
          "[messages][device]") {
  stepped_pair p{on_demand()};
  local_mr memory = p.rt.memory().allocate_zeroed(large_bytes);
  choice where{memory.slice()};
  const auto large = seeded_bytes(large_bytes, 1);
  const auto small = bytes_of("small");
  std::optional<started<detail::receive_message_op>> leaving;
  leaving.emplace(p.rt.executor(), p.b.receive());
  started<task<arrival>> next{p.rt.executor(), receive_at(p.b, where)};
  started<task<>> first_sent{p.rt.executor(), p.a.send(small)};
  started<task<>> second_sent{p.rt.executor(), p.a.send(large)};
  mark{p}.pass();
  p.rt.poll();  // The messages are known, and no task has run since.
  CHECK_FALSE(leaving->has_ended());
  leaving.reset();
  p.step_until([&] { return next.has_ended(); });
  CHECK(next->take_result()->size_bytes == small.size());
  started<task<arrival>> last{p.rt.executor(), receive_at(p.b, where)};
  p.step_until([&] { return last.has_ended() && second_sent.has_ended(); });
  CHECK(last->take_result()->size_bytes == large_bytes);
  CHECK(where.asked == std::vector{small.size(), large_bytes});
}

TEST_CASE("a wait that is stopped in the iteration in which its message comes leaves the message",
          "[messages][device]") {
  const size_t size = GENERATE(size_t{5}, large_bytes);
  stepped_pair p{on_demand()};
  local_mr memory = p.rt.memory().allocate_zeroed(large_bytes);
  choice where{memory.slice()};
  const auto bytes = seeded_bytes(size, 1);
  const std::uint64_t before = reads(p.b);
  event other{p.rt.executor()};
  started<task<size_t>> both{p.rt.executor(),
                             [](event& e, message_stream& s, choice& at) -> task<size_t> {
                               co_return (co_await when_any(e.wait(), receive_at(s, at))).index();
                             }(other, p.b, where)};
  started<task<>> sending{p.rt.executor(), p.a.send(bytes)};
  mark m{p};
  if (size == large_bytes) p.step_until([&] { return reads(p.b) == before + 1; });
  // The wait could end well now, but the other operation is first.
  m.pass();
  other.set();
  p.rt.poll();
  p.settle();
  REQUIRE(both.has_ended());
  CHECK(both->take() == 0);
  CHECK(p.b.counters().received == 1);  // The one by which the sides met.
  std::ranges::fill(memory.bytes(), std::byte{0});
  started<task<arrival>> next{p.rt.executor(), receive_at(p.b, where)};
  p.step_until([&] { return next.has_ended() && sending.has_ended(); });
  CHECK(std::ranges::equal(memory.bytes().first(size), bytes));
  CHECK_FALSE(sending->failed());
}

TEST_CASE("while tasks that choose the memory wait, no large message takes memory of its own",
          "[messages][device]") {
  stream_pair p{smallest, smallest};
  local_mr from = p.rt.memory().allocate_zeroed(large_bytes);
  local_mr memory = p.rt.memory().allocate_zeroed(3 * large_bytes);
  const auto used = test::held_by(p.rt);
  const auto where = [&](const arrival& next) {
    CHECK(test::held_by(p.rt) == used);
    return memory.first(next.size_bytes);
  };
  p.rt.run(when_all(p.b.receive_into(where), p.b.receive_into(where), p.b.receive_into(where),
                    p.a.send(from.slice()), p.a.send(from.slice()), p.a.send(from.slice())));
  CHECK(p.b.counters().large_received == 3);
}

TEST_CASE(
    "a message that is read when its sender withdraws it arrives, or is refused if nobody waits",
    "[messages][device]") {
  const bool is_left = GENERATE(false, true);
  stepped_pair p{on_demand()};
  local_mr memory = p.rt.memory().allocate_zeroed(large_bytes);
  choice where{memory.slice()};
  const auto bytes = seeded_bytes(large_bytes, 1);
  const std::uint64_t before = reads(p.b);
  std::optional<started<task<arrival>>> receiving;
  receiving.emplace(p.rt.executor(), receive_at(p.b, where));
  std::optional<started<task<>>> sending;
  sending.emplace(p.rt.executor(), p.a.send(bytes));
  p.step_until([&] { return reads(p.b) == before + 1; });
  mark m{p};
  sending.reset();
  m.pass();
  p.rt.poll();  // The READ has ended, and the message is withdrawn. No task has run since.
  CHECK_FALSE(receiving->has_ended());
  if (is_left) receiving.reset();
  p.step_until([&] { return p.a.connection().lending().open == 0; });
  CHECK(p.b.counters().large_received == (is_left ? 0 : 1));
  if (!is_left) CHECK(std::ranges::equal(memory.bytes(), bytes));
  CHECK(p.a.connection().lending().forced == 0);
  CHECK(p.b.connection().leases().empty());
  started<task<>> next_sent{p.rt.executor(), p.a.send(bytes_of("next"))};
  started<task<arrival>> next{p.rt.executor(), receive_at(p.b, where)};
  p.step_until([&] { return next.has_ended() && next_sent.has_ended(); });
  CHECK(next->take_result()->size_bytes == 4);
}

TEST_CASE("a message behind one that its sender has given up arrives, though the connection ends",
          "[messages][device]") {
  stepped_pair p{on_demand()};
  local_mr memory = p.rt.memory().allocate_zeroed(large_bytes);
  choice where{memory.slice()};
  const auto bytes = seeded_bytes(large_bytes, 1);
  const auto small = bytes_of("small");
  const std::uint64_t before = reads(p.b);
  started<task<arrival>> receiving{p.rt.executor(), receive_at(p.b, where)};
  std::optional<started<task<>>> given_up;
  given_up.emplace(p.rt.executor(), p.a.send(bytes));
  p.step_until([&] { return reads(p.b) == before + 1; });
  mark m{p};
  given_up.reset();
  started<task<>> sent{p.rt.executor(), p.a.send(small)};
  m.pass();
  p.rt.poll();  // The READ has ended, and both other frames have come. No task has run since.
  CHECK_FALSE(receiving.has_ended());
  p.b.connection().qp().abort({.code = errc::disconnected, .call = "test"});
  p.step_until([&] { return receiving.has_ended(); });
  auto outcome = receiving->take_result();
  REQUIRE(outcome.has_value());
  CHECK(outcome->size_bytes == small.size());
}
