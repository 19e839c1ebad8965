// Messages that are received into memory which the program chooses when they are known.
#include <cordma/messages/message_stream.hpp>

#include <cordma/io/wait_until.hpp>

#include <support/allocations.hpp>
#include <support/device.hpp>
#include <support/held.hpp>
#include <support/placed_messages.hpp>
#include <support/skip.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

using namespace cordma;
using namespace test::streams;
using Catch::Matchers::Contains;

namespace {

constexpr size_t mib = size_t{1} << 20;

/// Ends when `from` has a large message under way, which `to` knows of.
task<> announced(stream_pair& p) {
  co_await test::until(p.rt.executor(), [&] { return p.a.connection().lending().open == 1; });
  co_await p.a.connection().write(const_local_mr_slice{}, {});
  co_await test::due_timers_fired();
}

task<> pass_at(stream_pair& p, const_local_mr_slice memory, choice& where, bool is_large) {
  auto [sent, came] = co_await when_all(as_result(p.a.send(memory, 7u)), receive_at(p.b, where));
  CHECK(sent.has_value());
  CHECK(came.size_bytes == memory.size_bytes());
  CHECK(came.immediate == 7u);
  CHECK(came.is_large == is_large);
  CHECK(std::ranges::equal(where.memory.bytes().first(memory.size_bytes()), memory.bytes()));
  CHECK(where.asked == std::vector{memory.size_bytes()});
  where.asked.clear();
}

}  // namespace

TEST_CASE("a message of any size comes where the program says once it knows the size",
          "[messages][device]") {
  const unsigned ahead = GENERATE(0u, 2u);
  const stream_options options{
      .buffer_bytes = 256, .message_bytes_max = 2 * mib, .large_ahead = ahead};
  stream_pair p{options, options};
  local_mr from = p.rt.memory().allocate_uninitialized(2 * mib);
  local_mr to = p.rt.memory().allocate_zeroed(2 * mib);
  choice where{to.slice()};
  std::ranges::copy(seeded_bytes(2 * mib, 1), from.bytes().begin());
  for (const size_t size : {size_t{0}, size_t{1}, size_t{256}, size_t{257}, mib, 2 * mib}) {
    INFO(size);
    std::ranges::fill(to.bytes(), std::byte{0xee});
    p.rt.run(pass_at(p, from.first(size), where, size > 256));
    CHECK(std::ranges::count(to.bytes().subspan(size), std::byte{0xee}) ==
          std::ptrdiff_t(2 * mib - size));
  }
  CHECK(p.b.counters().received == 6);
  CHECK(p.b.counters().large_received == 3);
  CHECK(p.a.counters().large_sent == 3);
}

TEST_CASE("a large message is read where the program says, and needs no other memory",
          "[messages][device]") {
  runtime_options tight;
  tight.memory = {.chunk_bytes = 2 * mib, .limit_bytes = 24 * mib};
  stream_pair p{smallest, smallest, std::move(tight)};
  const local_mr from = p.rt.memory().allocate_zeroed(8 * mib);
  local_mr to = p.rt.memory().allocate_zeroed(8 * mib);
  choice where{to.slice()};
  const auto used = test::held_by(p.rt);
  // A third piece of that size is more than there is.
  CHECK_THROWS_AS(p.rt.memory().allocate_zeroed(8 * mib), error);
  for (int n = 0; n < 3; ++n) p.rt.run(pass_at(p, from, where, true));
  CHECK(test::held_by(p.rt) == used);
  CHECK(code_of(p.rt.run(as_result(p.a.send(from.slice())))) == errc::refused);
}

TEST_CASE("a large message that was fetched ahead is copied, and its memory freed",
          "[messages][device]") {
  stream_pair pair{smallest, smallest};
  local_mr to = pair.rt.memory().allocate_zeroed(large_bytes);
  const auto used = test::held_by(pair.rt);
  const auto bytes = seeded_bytes(large_bytes, 1);
  pair.rt.run([](stream_pair& p, std::span<const std::byte> all, choice where) -> task<> {
    scope sending{p.rt.executor()};
    sending.spawn(p.a.send(all));
    co_await test::until(p.rt.executor(), [&] { return p.b.counters().large_received == 1; });
    const std::uint64_t before = reads(p.b);
    const arrival came = co_await receive_at(p.b, where);
    CHECK(came.is_large);
    CHECK(std::ranges::equal(where.memory.bytes(), all));
    CHECK(reads(p.b) == before);
    co_await sending.join();
  }(pair, bytes, choice{to.slice()}));
  CHECK(pair.b.counters().received == 1);
  CHECK(pair.b.counters().large_received == 1);
  CHECK(test::held_by(pair.rt) == used);
}

TEST_CASE("where nothing is fetched ahead, a large message is read when it is asked for",
          "[messages][device]") {
  stream_pair pair{on_demand(), on_demand()};
  local_mr to = pair.rt.memory().allocate_zeroed(large_bytes);
  const auto bytes = seeded_bytes(large_bytes, 1);
  pair.rt.run([](stream_pair& p, std::span<const std::byte> all, choice where) -> task<> {
    for (const bool is_into : {false, true, false}) {
      scope sending{p.rt.executor()};
      sending.spawn(p.a.send(all));
      const std::uint64_t before = reads(p.b);
      co_await announced(p);
      CHECK(reads(p.b) == before);
      if (is_into) {
        static_cast<void>(co_await receive_at(p.b, where));
      } else {
        const stream_message m = co_await p.b.receive();
        CHECK(std::ranges::equal(m.bytes(), all));
      }
      CHECK(reads(p.b) == before + 1);
      co_await sending.join();
    }
    CHECK(std::ranges::equal(where.memory.bytes(), all));
  }(pair, bytes, choice{to.slice()}));
}

namespace {

constexpr unsigned many = 60;

/// Number `n`: each third is a large one.
std::vector<std::byte> numbered(unsigned n) {
  std::vector<std::byte> all = seeded_bytes(n % 3 == 1 ? large_bytes + n : 8 + n % 50, n);
  std::memcpy(all.data(), &n, sizeof n);
  return all;
}

task<> send_numbered(message_stream& s) {
  for (unsigned n = 0; n < many; ++n) co_await s.send(numbered(n));
}
task<> receive_numbered(message_stream& s, unsigned n) {
  const stream_message m = co_await s.receive();
  CHECK(std::ranges::equal(m.bytes(), numbered(n)));
}
task<> fill_numbered(message_stream& s, unsigned n, local_mr_slice to) {
  choice where{to};
  const arrival came = co_await receive_at(s, where);
  CHECK(std::ranges::equal(to.bytes().first(came.size_bytes), numbered(n)));
  CHECK(where.asked.size() == 1);
}

}  // namespace

TEST_CASE("tasks get the messages in the order in which they asked, wherever they want them",
          "[messages][device]") {
  const unsigned ahead = GENERATE(0u, 1u, 2u, 64u);
  const unsigned plain_each = GENERATE(2u, 3u, 7u);
  INFO(ahead << ", " << plain_each);
  stream_options options = smallest;
  options.large_ahead = ahead;
  stream_pair pair{options, options};
  local_mr memory = pair.rt.memory().allocate_zeroed(many * 2 * large_bytes);
  pair.rt.run([](stream_pair& p, local_mr_slice to, unsigned each) -> task<> {
    scope receiving{p.rt.executor()};
    for (unsigned n = 0; n < many; ++n) {
      if (n % each == 0)
        receiving.spawn(receive_numbered(p.b, n));
      else
        receiving.spawn(fill_numbered(p.b, n, to.slice(n * 2 * large_bytes, 2 * large_bytes)));
    }
    co_await send_numbered(p.a);
    co_await receiving.join();
  }(pair, memory.slice(), plain_each));
  CHECK(pair.b.counters().received == many);
  CHECK(pair.b.counters().large_received == many / 3);
}

TEST_CASE("two tasks that choose the memory share the messages, and none is lost",
          "[messages][device]") {
  stream_pair pair{on_demand(), on_demand()};
  std::vector<unsigned> seen;
  local_mr memory = pair.rt.memory().allocate_zeroed(4 * large_bytes);
  struct taker {
    static task<> run(message_stream& s, local_mr_slice to, std::vector<unsigned>& all) {
      for (unsigned n = 0; n < many / 2; ++n) {
        choice where{to};
        const arrival came = co_await receive_at(s, where);
        unsigned number = 0;
        std::memcpy(&number, to.bytes().data(), sizeof number);
        CHECK(std::ranges::equal(to.bytes().first(came.size_bytes), numbered(number)));
        all.push_back(number);
      }
    }
  };
  pair.rt.run(when_all(send_numbered(pair.a),
                       taker::run(pair.b, memory.first(2 * large_bytes), seen),
                       taker::run(pair.b, memory.last(2 * large_bytes), seen)));
  std::ranges::sort(seen);
  REQUIRE(seen.size() == many);
  for (unsigned n = 0; n < many; ++n) CHECK(seen[n] == n);
}

TEST_CASE("memory that does not fit fails the wait with the reason, and the message stays",
          "[messages][device]") {
  const unsigned ahead = GENERATE(0u, 1u);
  const size_t size = GENERATE(size_t{50}, large_bytes);
  INFO(ahead << ", " << size);
  stream_options options = smallest;
  options.large_ahead = ahead;
  stream_pair p{options, options};
  verbs::protection_domain other_pd{p.rt.context()};
  mr_allocator elsewhere{other_pd};
  local_mr good = p.rt.memory().allocate_zeroed(size), wrong = elsewhere.allocate_zeroed(size),
           gone = p.rt.memory().allocate_zeroed(size);
  const local_mr_slice stale = gone.slice();
  gone.reset();
  const std::vector<std::byte> constant(size);
  const const_local_mr text = p.rt.memory().register_external(constant);
  const const_local_mr_slice read_only = text.slice();
  const local_mr_slice unwritable{const_cast<std::byte*>(read_only.bytes().data()), size,
                                  read_only.block(), read_only.lkey(), read_only.generation()};
  const auto bytes = seeded_bytes(size, 1);
  started<task<>> sending{p.rt.executor(), p.a.send(bytes)};
  const auto outcome = [&](const local_mr_slice& given) {
    return p.rt.run(as_result(p.b.receive_into([given](const arrival&) { return given; })));
  };
  const auto text_of_failure = [&](const local_mr_slice& given, errc code) {
    const auto came = outcome(given);
    REQUIRE(code_of(came) == code);
    CHECK(std::string{came.failure().call} == "receive_into");
    return std::string{came.failure().detail.view()};
  };
  const std::string little = std::to_string(size - 1) + " bytes for a message of ";
  CHECK_THAT(text_of_failure(good.first(size - 1), errc::wrong_length),
             Contains(little + std::to_string(size)));
  CHECK_THAT(text_of_failure({}, errc::wrong_length), Contains("gave 0 bytes"));
  CHECK_THAT(text_of_failure(wrong.slice(), errc::wrong_protection_domain), Contains("memory()"));
  CHECK_THAT(text_of_failure(stale, errc::stale_slice), Contains("freed"));
  CHECK_THAT(text_of_failure(unwritable, errc::access_denied), Contains("local_write"));
  const auto thrower = [](const arrival&) -> local_mr_slice { throw std::runtime_error{"no"}; };
  CHECK_THROWS_AS(p.rt.run(p.b.receive_into(thrower)), std::runtime_error);
  CHECK(p.b.counters().received == 0);
  CHECK(outcome(good.slice()).has_value());
  CHECK(std::ranges::equal(good.bytes(), bytes));
  p.rt.run(test::until(p.rt.executor(), [&] { return sending.has_ended(); }));
  CHECK_FALSE(sending->failed());
  CHECK(p.b.counters().received == 1);
  CHECK(p.b.connection().is_open());
}

TEST_CASE("a message may go into memory that stands, and that no request holds",
          "[messages][device]") {
  stream_pair p{on_demand(), on_demand()};
  local_mr memory = p.rt.memory().allocate_zeroed(large_bytes);
  for (const size_t size : {size_t{10}, large_bytes}) {
    choice where{memory.slice().standing()};
    const auto bytes = seeded_bytes(size, unsigned(size));
    auto [sent, came] = p.rt.run(when_all(as_result(p.a.send(bytes)), receive_at(p.b, where)));
    CHECK(sent.has_value());
    CHECK(std::ranges::equal(memory.bytes().first(came.size_bytes), bytes));
  }
}

namespace {

/// Stops a wait at every step that there is; each message is then received all the same.
task<> stop_at_each_step(stream_pair& p, size_t size, local_mr_slice to, unsigned& stopped) {
  for (unsigned steps = 0; steps < 24; ++steps) {
    const auto bytes = seeded_bytes(size, steps);
    scope sending{p.rt.executor()};
    scope receiving{p.rt.executor()};
    std::optional<size_t> came;
    choice where{to};
    receiving.spawn([](message_stream& s, choice& at, std::optional<size_t>& got) -> task<> {
      got = (co_await receive_at(s, at)).size_bytes;
    }(p.b, where, came));
    sending.spawn(p.a.send(bytes));
    for (unsigned iterate = 0; iterate < steps; ++iterate) co_await test::due_timers_fired();
    receiving.request_stop();
    co_await receiving.join();
    if (!came) {
      ++stopped;
      came = (co_await receive_at(p.b, where)).size_bytes;
    }
    CHECK(std::ranges::equal(to.bytes().first(*came), bytes));
    co_await sending.join();
  }
}

}  // namespace

TEST_CASE("a wait that is stopped at any step leaves the message to the next",
          "[messages][device]") {
  const unsigned ahead = GENERATE(0u, 2u);
  const size_t size = GENERATE(size_t{50}, large_bytes);
  stream_options options = smallest;
  options.large_ahead = ahead;
  stream_pair p{options, options};
  local_mr memory = p.rt.memory().allocate_zeroed(large_bytes);
  unsigned stopped = 0;
  p.rt.run(stop_at_each_step(p, size, memory.slice(), stopped));
  CHECK(stopped > 0);
  CHECK(stopped < 24);
  CHECK(p.b.counters().received == 24);
  CHECK(p.b.counters().large_received == (size == large_bytes ? 24 : 0));
  CHECK(p.b.connection().leases().empty());
}

TEST_CASE("a message is not lost when another operation is first in the same turn",
          "[messages][device]") {
  const unsigned ahead = GENERATE(0u, 2u);
  stream_options options = smallest;
  options.large_ahead = ahead;
  stream_pair pair{options, options};
  local_mr memory = pair.rt.memory().allocate_zeroed(2 * large_bytes);
  unsigned stops = 0;
  struct taker {
    static task<> run(stream_pair& p, local_mr_slice to, unsigned& stopped) {
      unsigned step = 0;
      for (unsigned n = 0; n < many;) {
        choice where{to};
        auto first = co_await when_any(
            receive_at(p.b, where),
            test::until(p.rt.executor(), [left = ++step % 9]() mutable { return left-- == 0; }));
        if (first.index() == 0) {
          const auto bytes = numbered(n++);
          CHECK(std::ranges::equal(to.bytes().first(bytes.size()), bytes));
        } else {
          ++stopped;
        }
      }
    }
  };
  pair.rt.run(when_all(send_numbered(pair.a), taker::run(pair, memory.slice(), stops)));
  CHECK(stops > 0);
  CHECK(pair.b.counters().received == many);
}

TEST_CASE("a READ that a wait leaves behind keeps its memory, and the message is read again",
          "[messages][device]") {
  const bool is_destroyed = GENERATE(false, true);
  const unsigned ahead = GENERATE(0u, 2u);
  stream_options options = smallest;
  options.large_ahead = ahead;
  stepped_pair p{options};
  const auto bytes = seeded_bytes(large_bytes, 1);
  local_mr first = p.rt.memory().allocate_zeroed(large_bytes);
  local_mr second = p.rt.memory().allocate_zeroed(large_bytes);
  choice into_first{first.slice()}, into_second{second.slice()};
  memory_block& block = *first.slice().block();
  const std::uint64_t before = reads(p.b);
  std::optional<started<task<arrival>>> leaving;
  leaving.emplace(p.rt.executor(), receive_at(p.b, into_first));
  started<task<>> sending{p.rt.executor(), p.a.send(bytes)};
  p.step_until([&] { return reads(p.b) == before + 1; });
  if (is_destroyed) {
    leaving.reset();
  } else {
    leaving->request_stop();
    p.settle();
    REQUIRE(leaving->has_ended());
    CHECK((*leaving)->take_result().is_cancelled());
  }
  CHECK(reads(p.b) == before + (ahead == 0 ? 1 : 2));
  CHECK(block.holders() == 2);
  first.reset();
  CHECK(block.holders() == 1);
  started<task<arrival>> receiving{p.rt.executor(), receive_at(p.b, into_second)};
  p.step_until([&] { return receiving.has_ended() && sending.has_ended(); });
  CHECK(std::ranges::equal(second.bytes(), bytes));
  CHECK_FALSE(sending->failed());
  CHECK(reads(p.b) == before + 2);
  CHECK(block.holders() == 0);
  CHECK(p.b.counters().large_received == 1);
  CHECK(p.b.connection().leases().empty());
}

TEST_CASE("a message that is withdrawn before anybody is asked about it is gone, and others come",
          "[messages][device]") {
  stepped_pair p{on_demand()};
  const auto bytes = seeded_bytes(large_bytes, 1);
  local_mr memory = p.rt.memory().allocate_zeroed(large_bytes);
  local_mr mark = p.rt.memory(test::all_access).allocate_zeroed(1);
  const local_mr one = p.rt.memory().allocate_zeroed(1);
  const local_mr other = p.rt.memory().allocate_zeroed(100);
  choice where{memory.slice()};
  started<task<arrival>> receiving{p.rt.executor(), receive_at(p.b, where)};
  started<task<arrival>> behind{p.rt.executor(), receive_at(p.b, where)};
  std::optional<started<task<>>> sending;
  sending.emplace(p.rt.executor(), p.a.send(bytes));
  sending.reset();
  // A WRITE behind both frames shows when they are there, and nobody has polled for them.
  *const_cast<std::byte*>(one.bytes().data()) = std::byte{1};
  const auto marking = p.a.connection().post(write(one.slice(), mark.remote_slice()));
  const volatile std::byte& seen = mark.bytes()[0];
  p.rt.run(wait_until(p.rt.executor(), [&] { return seen == std::byte{1}; }));
  p.step_until([&] { return p.a.connection().lending().open == 0; });
  CHECK(where.asked.empty());
  CHECK_FALSE(receiving.has_ended());
  // The first in line is still the first, and takes no other memory.
  const auto used = test::held_by(p.rt);
  started<task<>> next{p.rt.executor(), p.a.send(other.slice())};
  p.step_until([&] {
    CHECK(test::held_by(p.rt) == used);
    return receiving.has_ended() && next.has_ended();
  });
  CHECK(receiving->take_result()->size_bytes == 100);
  CHECK(where.asked == std::vector{size_t{100}});
  CHECK_FALSE(behind.has_ended());
  started<task<>> last{p.rt.executor(), p.a.send(bytes_of("last one"))};
  p.step_until([&] { return behind.has_ended() && last.has_ended(); });
  CHECK(behind->take_result()->size_bytes == 8);
}

TEST_CASE("when the connection ends under a READ, the wait ends as the connection did",
          "[messages][device]") {
  stepped_pair p{on_demand()};
  const auto bytes = seeded_bytes(large_bytes, 1);
  local_mr memory = p.rt.memory().allocate_zeroed(large_bytes);
  choice where{memory.slice()};
  const std::uint64_t before = reads(p.b);
  started<task<arrival>> reading{p.rt.executor(), receive_at(p.b, where)};
  started<task<arrival>> waiting{p.rt.executor(), receive_at(p.b, where)};
  started<task<>> sending{p.rt.executor(), p.a.send(bytes)};
  p.step_until([&] { return reads(p.b) == before + 1; });
  p.b.connection().qp().abort({.code = errc::device_failed, .call = "test"});
  p.step_until([&] { return reading.has_ended() && waiting.has_ended() && sending.has_ended(); });
  CHECK(code_of(reading->take_result()) == errc::device_failed);
  CHECK(code_of(waiting->take_result()) == errc::device_failed);
  CHECK(sending->failed());
  CHECK(p.b.counters().received == 1);  // The one by which the sides met.
}

TEST_CASE("a program that is asked where a message goes may drop the stream",
          "[messages][device]") {
  for (const size_t size : {size_t{50}, large_bytes}) {
    stream_pair pair{on_demand(), on_demand()};
    local_mr memory = pair.rt.memory().allocate_zeroed(large_bytes);
    const auto bytes = seeded_bytes(size, 1);
    pair.rt.run([](stream_pair& p, std::span<const std::byte> all, local_mr_slice to) -> task<> {
      scope sending{p.rt.executor()};
      sending.spawn([](stream_pair& of, std::span<const std::byte> sent) -> task<> {
        static_cast<void>(co_await as_result(of.a.send(sent)));
      }(p, all));
      const auto came = co_await as_result(p.b.receive_into([&p, to](const arrival& next) {
        p.b = {};
        return to.first(next.size_bytes);
      }));
      // A small message was here already.
      CHECK(came.has_value() == (all.size() < large_bytes));
      if (came.has_value()) CHECK(std::ranges::equal(to.bytes().first(all.size()), all));
      co_await sending.join();
    }(pair, bytes, memory.slice()));
  }
}

TEST_CASE("messages that came before the end can be placed, and then the wait says why it ended",
          "[messages][device]") {
  stream_pair pair{smallest, smallest};
  local_mr memory = pair.rt.memory().allocate_zeroed(large_bytes);
  pair.rt.run([](stream_pair& p, choice where) -> task<> {
    co_await send_numbers(p.a, 0, 2);
    static_cast<void>(co_await p.b.receive());
    p.a = {};
    const arrival came = co_await receive_at(p.b, where);
    CHECK(text_of(where.memory.bytes().first(came.size_bytes)) == "1");
    const auto end = co_await as_result(receive_at(p.b, where));
    CHECK(code_of(end) == errc::disconnected);
    CHECK(where.asked.size() == 1);
  }(pair, choice{memory.slice()}));
}

namespace {

/// Stops large messages at every step that there is; whoever waits then gets the next.
task<> stop_sends(stream_pair& p, std::span<const std::byte> bytes, local_mr_slice to,
                  unsigned& arrived) {
  for (unsigned steps = 0; steps < 40; ++steps) {
    scope sending{p.rt.executor()};
    scope receiving{p.rt.executor()};
    choice where{to};
    bool is_large = false;
    receiving.spawn([](message_stream& s, choice& at, bool& was_large) -> task<> {
      for (bool is_next = false; !is_next;) {
        const arrival came = co_await receive_at(s, at);
        is_next = !came.is_large;
        was_large |= came.is_large;
        if (is_next) CHECK(text_of(at.memory.bytes().first(came.size_bytes)) == "next");
      }
    }(p.b, where, is_large));
    sending.spawn(p.a.send(bytes));
    for (unsigned iterate = 0; iterate < steps; ++iterate) co_await test::due_timers_fired();
    sending.request_stop();
    co_await sending.join();
    co_await p.a.send(bytes_of("next"));
    co_await receiving.join();
    if (is_large) CHECK(std::ranges::equal(to.bytes().last(bytes.size() - 4), bytes.subspan(4)));
    arrived += is_large ? 1 : 0;
  }
  co_await test::until(p.rt.executor(), [&] { return p.a.connection().lending().open == 0; });
}

}  // namespace

TEST_CASE("a large message whose send is stopped at any step arrives whole or not at all",
          "[messages][device]") {
  stream_pair p{on_demand(), on_demand()};
  local_mr memory = p.rt.memory().allocate_zeroed(large_bytes);
  const auto bytes = seeded_bytes(large_bytes, 3);
  unsigned arrived = 0;
  p.rt.run(stop_sends(p, bytes, memory.slice(), arrived));
  CHECK(arrived > 0);
  CHECK(arrived < 40);
  CHECK(p.b.counters().large_received == arrived);
  CHECK(p.a.connection().leases().empty());
  CHECK(p.b.connection().leases().empty());
}

namespace {

task<> exchange_placed(stream_pair& p, const_local_mr_slice from, local_mr_slice to,
                       unsigned count) {
  const auto where = [&to](const arrival& next) { return to.first(next.size_bytes); };
  for (; count > 0; --count) {
    static_cast<void>(co_await when_all(p.a.send(from), p.b.receive_into(where)));
    static_cast<void>(co_await when_all(p.b.send(from), p.a.receive_into(where)));
  }
}

}  // namespace

TEST_CASE("a message that is placed costs no allocation once all is warm", "[messages][device]") {
  if (!support::counts_allocations()) CORDMA_SKIP("allocations are not counted here");
  stream_pair p{on_demand({}), on_demand({})};
  const local_mr from = p.rt.memory().allocate_zeroed(mib);
  local_mr to = p.rt.memory().allocate_zeroed(mib);
  for (const size_t size : {size_t{32}, size_t{4096}, size_t{4097}, mib}) {
    // A large message is lent by a window, for which rxe's library allocates.
    if (size > 4096 && !test::is_soft()) break;
    INFO(size);
    p.rt.run(exchange_placed(p, from.first(size), to, 200));
    const std::uint64_t before = support::thread_allocation_count();
    p.rt.run(exchange_placed(p, from.first(size), to, 200));
    CHECK(support::thread_allocation_count() - before == 0);
  }
}
