#include <cordma/rpc/message_stream.hpp>

#include "transfer/send_queue.hpp"

#include <support/allocations.hpp>
#include <support/connected_pair.hpp>
#include <support/outcome.hpp>
#include <support/skip.hpp>
#include <support/text.hpp>
#include <support/until.hpp>

#include <catch2/catch.hpp>

#include <cordma/coro/scope.hpp>
#include <cordma/coro/when_any.hpp>

#include <unistd.h>

#include <cstring>
#include <string>
#include <string_view>
#include <vector>

using namespace cordma;
using namespace std::chrono_literals;
using test::bytes_of;
using test::code_of;
using test::never_not_ready;
using test::text_of;

namespace {

using std::size_t;

/// Different at every offset and for every `seed`.
std::vector<std::byte> pattern(size_t size, unsigned seed) {
  std::vector<std::byte> all(size);
  for (size_t i = 0; i < size; ++i) all[i] = std::byte((i * 7 + (i >> 8) + seed) & 0xff);
  return all;
}

struct stream_pair : test::connected_pair {
  explicit stream_pair(const stream_options& of_client = {}, const stream_options& of_server = {},
                       runtime_options options = {})
      : connected_pair{std::move(options), never_not_ready(), never_not_ready()},
        a{std::move(client), of_client},
        b{std::move(server), of_server} {}
  message_stream a, b;
};

/// The smallest inbox: all but four of eight buffers are for messages.
constexpr stream_options smallest{.depth = 8, .buffer_bytes = 64};
constexpr unsigned inbox = 4;
constexpr size_t large_bytes = 1000;

task<> send_numbers(message_stream& s, unsigned first, unsigned end) {
  for (unsigned n = first; n < end; ++n) {
    const std::string text = std::to_string(n);
    co_await s.send(bytes_of(text), n % 3 == 0 ? std::optional{n} : std::nullopt);
  }
}

task<> receive_numbers(message_stream& s, unsigned first, unsigned end) {
  for (unsigned n = first; n < end; ++n) {
    const stream_message m = co_await s.receive();
    CHECK(text_of(m.bytes()) == std::to_string(n));
    CHECK(m.immediate() == (n % 3 == 0 ? std::optional{n} : std::nullopt));
  }
}

task<> both_ways(message_stream& a, message_stream& b, unsigned count) {
  co_await when_all(send_numbers(a, 0, count), send_numbers(b, 0, count),
                    receive_numbers(a, 0, count), receive_numbers(b, 0, count));
}

/// Sends it, and checks that it arrives as it was.
task<> pass(message_stream& from, message_stream& to, std::span<const std::byte> bytes) {
  auto [sent, m] = co_await when_all(as_result(from.send(bytes)), to.receive());
  CHECK(sent.has_value());
  CHECK(m.size_bytes() == bytes.size());
  CHECK(std::ranges::equal(m.bytes(), bytes));
}

task<> pass_memory(message_stream& from, message_stream& to, const_local_mr_slice memory) {
  auto [sent, m] = co_await when_all(as_result(from.send(memory)), to.receive());
  CHECK(sent.has_value());
  CHECK(std::ranges::equal(m.bytes(), memory.bytes()));
}

}  // namespace

TEST_CASE("messages arrive whole, in order, with their immediates, both ways at once",
          "[rpc][device]") {
  stream_pair p;
  p.rt.run(both_ways(p.a, p.b, 1000));
  CHECK(p.a.counters().sent == 1000);
  CHECK(p.b.counters().received == 1000);
  CHECK(p.a.counters().large_sent == 0);
}

TEST_CASE("a message of any size arrives intact", "[rpc][device]") {
  stream_pair p{{.buffer_bytes = 256}, {.buffer_bytes = 1000}};
  unsigned seed = 0;
  for (const size_t size :
       {size_t{0}, size_t{1}, size_t{55}, size_t{56}, size_t{57}, size_t{255}, size_t{256},
        size_t{257}, size_t{999}, size_t{1000}, size_t{1001}, size_t{4096}, size_t{1} << 20}) {
    const auto bytes = pattern(size, ++seed);
    INFO(size);
    p.rt.run(pass(p.a, p.b, bytes));
    p.rt.run(pass(p.b, p.a, bytes));
    local_mr memory = p.rt.memory().allocate_uninitialized(std::max(size, size_t{1}));
    std::ranges::copy(bytes, memory.bytes().begin());
    p.rt.run(pass_memory(p.a, p.b, memory.first(size)));
  }
}

TEST_CASE("a message arrives intact, be it inline in one piece, in two, or copied",
          "[rpc][device]") {
  connection_options wide = never_not_ready();
  wide.capabilities.inline_max = 128;
  test::connected_pair made{{}, wide, wide};
  message_stream a{std::move(made.client)}, b{std::move(made.server)};
  const size_t most = a.connection().qp().verbs().capabilities().inline_max - 8;  // Its header's.
  REQUIRE(most >= 120);
  for (const size_t size : {size_t{56}, size_t{57}, most, most + 1}) {
    const auto bytes = pattern(size, unsigned(size));
    INFO(size);
    made.rt.run(pass(a, b, bytes));
  }
}

TEST_CASE("a message of 1 GiB arrives whole", "[rpc][device]") {
  constexpr size_t most = size_t{1} << 30, part = size_t{32} << 10;
  if (!support::counts_allocations()) CORDMA_SKIP("a sanitizer would take minutes over it");
  if (size_t(::sysconf(_SC_PHYS_PAGES)) * size_t(::sysconf(_SC_PAGESIZE)) < 4 * most)
    CORDMA_SKIP("less than 4 GiB of memory");
  stream_pair p{{}, {.message_bytes_max = most}};
  local_mr memory = p.rt.memory().allocate_uninitialized(most);
  // A number in each part: no two are alike, none is like memory that nobody wrote, and few pages
  // are touched.
  for (size_t number = 0; number < most / part; ++number) {
    const size_t said = number + 1;
    std::memcpy(&memory.bytes()[number * part + number / 8 * 8 % part], &said, sizeof said);
  }
  p.rt.run(pass_memory(p.a, p.b, memory.slice()));
  CHECK(p.b.counters().large_received == 1);
}

TEST_CASE("who sends before the peer has a stream waits for it, and finds it ready",
          "[rpc][device]") {
  test::connected_pair pair{{}, never_not_ready(), never_not_ready()};
  message_stream first{std::move(pair.client)};
  pair.rt.run([](test::connected_pair& p, message_stream& early) -> task<> {
    scope sending{p.rt.executor()};
    sending.spawn(send_numbers(early, 0, 3));
    // It has been told nothing, and a whole round trip on the same queue pair is over.
    const auto beat = co_await as_result(early.connection().write(const_local_mr_slice{}, {}));
    CHECK(beat.has_value());
    CHECK(early.counters().sent == 0);
    message_stream late{std::move(p.server)};
    co_await receive_numbers(late, 0, 3);
    co_await sending.join();
  }(pair, first));
}

namespace {

task<> fill_and_drain(stream_pair& p) {
  scope sending{p.rt.executor()};
  sending.spawn(send_numbers(p.a, 0, 3 * inbox));
  std::vector<stream_message> kept;
  for (unsigned n = 0; n < inbox; ++n) kept.push_back(co_await p.b.receive());
  // A whole round trip later nothing more was sent.
  co_await p.a.connection().write(const_local_mr_slice{}, {});
  CHECK(p.a.counters().sent == inbox);
  CHECK(p.a.counters().credit_waits > 0);
  // Each that is dropped makes room for one, even though nothing else tells the peer.
  for (unsigned n = 0; n < 2 * inbox; ++n) {
    CHECK(text_of(kept[n % inbox].bytes()) == std::to_string(n));
    kept[n % inbox].reset();
    kept[n % inbox] = co_await p.b.receive();
  }
  CHECK(text_of(kept.front().bytes()) == std::to_string(2 * inbox));
  co_await sending.join();
}

}  // namespace

TEST_CASE("who sends more than the peer has room for waits, until a message is dropped",
          "[rpc][device][P5]") {
  stream_pair p{smallest, smallest};
  p.rt.run(fill_and_drain(p));
}

TEST_CASE("two whose inboxes are full can both go on when one of them takes a message",
          "[rpc][device]") {
  stream_pair pair{smallest, smallest};
  pair.rt.run([](stream_pair& p) -> task<> {
    scope sending{p.rt.executor()};
    sending.spawn(send_numbers(p.a, 0, 100));
    sending.spawn(send_numbers(p.b, 0, 100));
    co_await test::until(p.rt.executor(), [&] {
      return p.a.counters().sent == inbox && p.b.counters().sent == inbox;
    });
    co_await receive_numbers(p.a, 0, 100);
    co_await receive_numbers(p.b, 0, 100);
    co_await sending.join();
  }(pair));
}

namespace {

task<> take_with_stops(message_stream& s, executor& home, unsigned count, unsigned& stops) {
  unsigned step = 0;
  for (unsigned n = 0; n < count;) {
    auto first = co_await when_any(
        s.receive(), test::until(home, [left = ++step % 4]() mutable { return left-- == 0; }));
    if (first.index() == 0)
      CHECK(text_of(std::get<0>(first).bytes()) == std::to_string(n++));
    else
      ++stops;
  }
}

}  // namespace

TEST_CASE("a stopped receive loses no message", "[rpc][device]") {
  stream_pair p{smallest, smallest};
  unsigned stops = 0;
  p.rt.run(when_all(send_numbers(p.a, 0, 500), take_with_stops(p.b, p.rt.executor(), 500, stops)));
  CHECK(stops > 0);
  CHECK(p.b.counters().received == 500);
}

TEST_CASE("several who receive share the messages, each of which one of them gets",
          "[rpc][device]") {
  stream_pair pair{smallest, smallest};
  unsigned received = 0;
  pair.rt.run([](stream_pair& p, unsigned& got) -> task<> {
    scope receiving{p.rt.executor()};
    struct receiver {
      static task<> run(message_stream& s, unsigned& got) {
        for (unsigned n = 0; n < 50; ++n) {
          static_cast<void>(co_await s.receive());
          ++got;
        }
      }
    };
    for (int n = 0; n < 4; ++n) receiving.spawn(receiver::run(p.b, got));
    co_await send_numbers(p.a, 0, 200);
    co_await receiving.join();
  }(pair, received));
  CHECK(received == 200);
}

TEST_CASE("a stopped send is sent or is not, and those behind it go on", "[rpc][device]") {
  stream_pair pair{smallest, smallest};
  pair.rt.run([](stream_pair& p) -> task<> {
    scope stopped{p.rt.executor()};
    scope sending{p.rt.executor()};
    stopped.spawn(send_numbers(p.a, 0, 100));
    co_await test::until(p.rt.executor(), [&] { return p.a.counters().sent == inbox; });
    sending.spawn(send_numbers(p.a, 1000, 1003));
    stopped.request_stop();
    co_await stopped.join();
    co_await receive_numbers(p.b, 0, inbox);
    co_await receive_numbers(p.b, 1000, 1003);
    co_await sending.join();
  }(pair));
}

namespace {

/// Stops large messages at every step that there is, then passes one.
task<> stop_large_sends(stream_pair& p, const std::vector<std::byte>& bytes, unsigned& arrived) {
  for (unsigned steps = 0; steps < 40; ++steps) {
    scope sending{p.rt.executor()};
    sending.spawn(p.a.send(bytes));
    for (unsigned turn = 0; turn < steps; ++turn) co_await test::due_timers_fired();
    sending.request_stop();
    co_await sending.join();
    // What comes next says whether it arrived.
    co_await p.a.send(bytes_of("next"));
    stream_message m = co_await p.b.receive();
    if (m.is_large()) {
      ++arrived;
      CHECK(std::ranges::equal(m.bytes(), bytes));
      m = co_await p.b.receive();
    }
    CHECK(text_of(m.bytes()) == "next");
  }
  co_await test::until(p.rt.executor(), [&] { return p.a.connection().lending().open == 0; });
}

}  // namespace

TEST_CASE("a large message that is stopped at any step arrives whole or not at all",
          "[rpc][device]") {
  stream_pair p{smallest, smallest};
  const auto bytes = pattern(large_bytes, 3);
  unsigned arrived = 0;
  p.rt.run(stop_large_sends(p, bytes, arrived));
  CHECK(arrived > 0);
  CHECK(arrived < 40);
  CHECK(p.a.connection().leases().empty());
  CHECK(p.b.connection().leases().empty());
  p.rt.run(pass(p.a, p.b, bytes));
}

namespace {

task<> send_sizes(message_stream& s, unsigned count) {
  for (unsigned n = 0; n < count; ++n)
    co_await s.send(pattern(n % 5 == 0 ? large_bytes + n : n, n));
}
task<> receive_sizes(message_stream& s, unsigned count) {
  for (unsigned n = 0; n < count; ++n) {
    const stream_message m = co_await s.receive();
    CHECK(std::ranges::equal(m.bytes(), pattern(n % 5 == 0 ? large_bytes + n : n, n)));
    CHECK(m.is_large() == (n % 5 == 0));
  }
}
task<> send_at_once(stream_pair& p, unsigned count) {
  std::vector<std::vector<std::byte>> all;
  for (unsigned n = 0; n < count; ++n) all.push_back(pattern(large_bytes + n, n));
  scope sending{p.rt.executor()};
  for (const auto& bytes : all) sending.spawn(p.a.send(bytes));
  for (const auto& bytes : all) {
    const stream_message m = co_await p.b.receive();
    CHECK(std::ranges::equal(m.bytes(), bytes));
  }
  co_await sending.join();
}

}  // namespace

TEST_CASE("large and small messages keep their order", "[rpc][device]") {
  stream_pair p{smallest, smallest};
  p.rt.run(when_all(send_sizes(p.a, 40), receive_sizes(p.b, 40), send_sizes(p.b, 40),
                    receive_sizes(p.a, 40)));
  p.rt.run(send_at_once(p, 20));
  CHECK(p.b.counters().large_received == 28);
}

TEST_CASE("no more large messages are fetched ahead than the options say", "[rpc][device]") {
  stream_options few = smallest;
  few.large_ahead = 1;
  stream_pair pair{few, few};
  const auto all = pattern(large_bytes, 1);
  pair.rt.run([](stream_pair& p, const std::vector<std::byte>& bytes) -> task<> {
    scope sending{p.rt.executor()};
    for (int n = 0; n < 3; ++n) sending.spawn(p.a.send(bytes));
    co_await test::until(p.rt.executor(), [&] { return p.b.counters().large_received == 1; });
    co_await p.a.connection().write(const_local_mr_slice{}, {});
    CHECK(p.b.counters().large_received == 1);
    for (int n = 0; n < 3; ++n) static_cast<void>(co_await p.b.receive());
    co_await sending.join();
  }(pair, all));
}

TEST_CASE("a large message takes three completions, four where no message can end a loan",
          "[rpc][device]") {
  constexpr stream_options roomy{.buffer_bytes = 64};
  stream_pair pair{roomy, roomy};
  const auto all = pattern(large_bytes, 1);
  pair.rt.run([](stream_pair& p, const std::vector<std::byte>& bytes) -> task<> {
    const completion_queue_driver& driver = p.a.connection().qp().driver();
    const auto invalidated = [&] {
      return driver.requests().of(request_kind::invalidate).completed;
    };
    isolation isolated = isolation::shared_key;
    {
      scope sending{p.rt.executor()};
      sending.spawn(p.a.send(bytes));
      const connection& lending = p.a.connection();
      co_await test::until(p.rt.executor(), [&] { return !lending.leases().empty(); });
      isolated = lending.leases().front().isolation;
      static_cast<void>(co_await p.b.receive());
      co_await sending.join();
    }
    const auto invalidated_before = invalidated();
    const auto before = driver.counters().completions;
    constexpr unsigned messages = 8;
    for (unsigned n = 0; n < messages; ++n) co_await pass(p.a, p.b, bytes);
    const auto by_itself = invalidated() - invalidated_before;
    CHECK(by_itself == (isolated == isolation::exact ? 0 : messages));
    // The announcement, the READ, that it is taken; of sixteen frames of a side one ends them all.
    CHECK(driver.counters().completions - before <= 3 * messages + by_itself + 2);
  }(pair, all));
}

TEST_CASE("a message that is kept outlives its stream and its connection", "[rpc][device]") {
  stream_pair pair{smallest, smallest};
  const auto all = pattern(large_bytes, 1);
  stream_message kept_small, kept_large;
  pair.rt.run([](stream_pair& p, std::span<const std::byte> bytes, stream_message& small,
                 stream_message& large) -> task<> {
    co_await p.a.send(bytes_of("kept"));
    small = co_await p.b.receive();
    auto [sent, m] = co_await when_all(as_result(p.a.send(bytes)), p.b.receive());
    large = std::move(m);
  }(pair, all, kept_small, kept_large));
  pair.a = {};
  pair.b = {};
  pair.rt.run(sleep_for(duration{0}));
  CHECK(text_of(kept_small.bytes()) == "kept");
  CHECK(std::ranges::equal(kept_large.bytes(), all));
}

TEST_CASE("a message can be sent on from where it arrived", "[rpc][device]") {
  stream_pair pair{smallest, smallest};
  const auto all = pattern(large_bytes, 9);
  pair.rt.run([](stream_pair& p, std::span<const std::byte> bytes) -> task<> {
    for (const std::span<const std::byte> one : {bytes.first(20), bytes}) {
      auto [sent, m] = co_await when_all(as_result(p.a.send(one)), p.b.receive());
      CHECK(sent.has_value());
      auto [back, n] = co_await when_all(as_result(p.b.send(m.slice())), p.a.receive());
      CHECK(back.has_value());
      CHECK(std::ranges::equal(n.bytes(), one));
    }
  }(pair, all));
}

TEST_CASE("when the connection ends, what waits ends, and what came can still be taken",
          "[rpc][device]") {
  stream_pair pair{smallest, smallest};
  pair.rt.run([](stream_pair& p) -> task<> {
    co_await send_numbers(p.a, 0, 2);
    const auto bytes = pattern(large_bytes, 9);
    scope sending{p.rt.executor()};
    struct outcomes {
      static task<> note(task<> send, std::error_code& into) {
        into = code_of(co_await as_result(std::move(send)));
      }
      static task<> receive(message_stream& s, std::error_code& into) {
        into = code_of(co_await as_result(s.receive()));
      }
      std::error_code waiting, large, receiver;
    } all;
    co_await test::until(p.rt.executor(), [&] { return p.b.connection().qp().slots_in_use() > 0; });
    for (int n = 0; n < 2; ++n) sending.spawn(send_numbers(p.a, 2, 3));
    sending.spawn(outcomes::note(p.a.send(bytes_of("full")), all.waiting));
    sending.spawn(outcomes::note(p.a.send(bytes), all.large));
    sending.spawn(outcomes::receive(p.a, all.receiver));
    co_await test::until(p.rt.executor(), [&] { return p.a.counters().sent == inbox; });
    p.a.connection().qp().abort({.code = errc::device_failed, .call = "test"});
    co_await sending.join();
    CHECK(all.waiting == errc::device_failed);
    CHECK(all.large == errc::device_failed);
    CHECK(all.receiver == errc::device_failed);
    const auto late = co_await as_result(p.a.send(bytes_of("late")));
    CHECK(code_of(late) == errc::device_failed);
    co_await receive_numbers(p.b, 0, 2);
    static_cast<void>(co_await p.b.receive());
    static_cast<void>(co_await p.b.receive());
    const auto end = co_await as_result(p.b.receive());
    CHECK(code_of(end) == errc::disconnected);
  }(pair));
}

TEST_CASE("a message that is longer than the peer takes is refused with both numbers",
          "[rpc][device][P4]") {
  stream_options takes_little = smallest;
  takes_little.message_bytes_max = 2000;
  stream_pair pair{smallest, takes_little};
  const auto all = pattern(2001, 1);
  pair.rt.run([](stream_pair& p, std::span<const std::byte> bytes) -> task<> {
    const auto sent = co_await as_result(p.a.send(bytes));
    REQUIRE(code_of(sent) == errc::wrong_length);
    CHECK(sent.failure().detail.view() == "2001 bytes, the peer takes messages of up to 2000");
    co_await pass(p.a, p.b, bytes.first(2000));
    co_await pass(p.b, p.a, bytes);
  }(pair, all));
}

TEST_CASE("a large message that the receiver has no memory for is refused, and the next is not",
          "[rpc][device]") {
  constexpr size_t mib = size_t{1} << 20;
  runtime_options tight;
  tight.memory = {.chunk_bytes = 2 * mib, .limit_bytes = 16 * mib};
  stream_pair pair{smallest, smallest, std::move(tight)};
  local_mr owned = pair.rt.memory().allocate_zeroed(8 * mib);
  pair.rt.run([](stream_pair& p, local_mr_slice memory) -> task<> {
    const auto sent = co_await as_result(p.a.send(memory));
    CHECK(code_of(sent) == errc::refused);
    co_await pass_memory(p.a, p.b, memory.first(mib));
  }(pair, owned.slice()));
}

TEST_CASE("memory that its owner frees while it is sent stays until the peer has it",
          "[rpc][device]") {
  stream_pair pair{smallest, smallest};
  const auto all = pattern(large_bytes, 5);
  pair.rt.run([](stream_pair& p, std::span<const std::byte> bytes) -> task<> {
    local_mr memory = p.rt.memory().allocate_uninitialized(bytes.size());
    std::ranges::copy(bytes, memory.bytes().begin());
    const local_mr_slice freed = memory.slice();
    scope sending{p.rt.executor()};
    sending.spawn(p.a.send(memory.slice()));
    co_await test::until(p.rt.executor(), [&] { return p.a.connection().lending().open == 1; });
    memory.reset();
    const stream_message m = co_await p.b.receive();
    CHECK(std::ranges::equal(m.bytes(), bytes));
    co_await sending.join();
    const auto again = co_await as_result(p.a.send(freed));
    CHECK(code_of(again) == errc::stale_slice);
  }(pair, all));
}

TEST_CASE("memory that its owner frees before the peer has room for it is sent all the same",
          "[rpc][device]") {
  stream_pair pair{smallest, smallest};
  const auto all = pattern(large_bytes, 6);
  pair.rt.run([](stream_pair& p, std::span<const std::byte> bytes) -> task<> {
    local_mr memory = p.rt.memory().allocate_uninitialized(bytes.size());
    std::ranges::copy(bytes, memory.bytes().begin());
    scope sending{p.rt.executor()};
    sending.spawn(p.a.send(memory.slice()));
    // In the same turn: it is announced, and not lent yet.
    sending.spawn([](local_mr& sent, const connection& by) -> task<> {
      CHECK(by.lending().open == 0);
      sent.reset();
      co_return;
    }(memory, p.a.connection()));
    const stream_message m = co_await p.b.receive();
    CHECK(std::ranges::equal(m.bytes(), bytes));
    co_await sending.join();
  }(pair, all));
}

TEST_CASE("a stream's messages are not for the connection's own receives", "[rpc][device]") {
  stream_pair pair;
  pair.rt.run([](stream_pair& p) -> task<> {
    const auto got = co_await as_result(p.b.connection().next_message());
    CHECK(code_of(got) == errc::refused);
    co_await pass(p.a, p.b, bytes_of("still there"));
  }(pair));
}

TEST_CASE("a stream needs an agent on both sides", "[rpc][device]") {
  connection_options none;
  none.agent.enabled = false;
  test::connected_pair p{{}, {}, none};
  try {
    const message_stream s{std::move(p.client)};
    FAIL("made");
  } catch (const error& e) {
    CHECK(e.code() == errc::not_supported);
    CHECK(e.failure().detail.view().find("connection_options::agent.enabled") != std::string::npos);
  }
}

TEST_CASE("stream options out of range are refused by name", "[rpc][device]") {
  const auto refusal = [](const stream_options& o) -> std::string {
    try {
      check(o);
    } catch (const error& e) {
      return std::string{e.failure().detail.view()};
    }
    return {};
  };
  CHECK(refusal({}).empty());
  CHECK(refusal({.buffer_bytes = 63}).find("buffer_bytes") != std::string::npos);
  CHECK(refusal({.message_bytes_max = 4095}).find("message_bytes_max") != std::string::npos);
  CHECK(refusal({.large_ahead = 0}).find("large_ahead") != std::string::npos);
  test::connected_pair pair;
  CHECK_THROWS_WITH((message_stream{std::move(pair.client), {.depth = 7}}),
                    Catch::Contains("depth") && Catch::Contains("7"));
  CHECK_THROWS_WITH((message_stream{std::move(pair.server), {.depth = 129}}),
                    Catch::Contains("129"));
}

namespace {

task<> exchange(stream_pair& p, std::span<const std::byte> bytes, unsigned count) {
  for (; count > 0; --count) {
    co_await p.a.send(bytes);
    const stream_message m = co_await p.b.receive();
    co_await p.b.send(m.bytes());
    static_cast<void>(co_await p.a.receive());
  }
}

}  // namespace

TEST_CASE("a message that fits a buffer costs no allocation once all is warm", "[rpc][device]") {
  if (!support::counts_allocations()) CORDMA_SKIP("allocations are not counted here");
  stream_pair p;
  const auto bytes = pattern(4096, 1);
  for (const size_t size : {size_t{32}, bytes.size()}) {
    INFO(size);
    const std::span<const std::byte> part = std::span{bytes}.first(size);
    p.rt.run(exchange(p, part, 200));
    const std::uint64_t before = support::thread_allocation_count();
    p.rt.run(exchange(p, part, 200));
    CHECK(support::thread_allocation_count() - before == 0);
  }
}

TEST_CASE("a credit frame under way takes no message's place", "[rpc][device][P5]") {
  stream_pair pair{smallest, smallest};
  pair.rt.run([](stream_pair& p) -> task<> {
    // One message in the other direction, whose end is told by a credit frame alone.
    co_await pass(p.b, p.a, bytes_of("first"));
    co_await test::until(p.rt.executor(), [&] { return p.a.counters().credit_frames > 0; });
    co_await fill_and_drain(p);
  }(pair));
}

namespace {

task<> write_for_ever(connection& c, bool& is_over) {
  while (!is_over) co_await c.write(const_local_mr_slice{}, {});
}

}  // namespace

TEST_CASE("messages get their turn while others fill the send queue", "[rpc][device]") {
  stream_pair pair{smallest, smallest};
  pair.rt.run([](stream_pair& p) -> task<> {
    bool is_over = false;
    scope writing{p.rt.executor()};
    for (int n = 0; n < 300; ++n) writing.spawn(write_for_ever(p.a.connection(), is_over));
    co_await when_all(send_numbers(p.a, 0, 20), receive_numbers(p.b, 0, 20));
    is_over = true;
    co_await writing.join();
  }(pair));
}

TEST_CASE("what was sent without a completion entry ends with its connection", "[rpc][device]") {
  stream_pair pair{smallest, smallest};
  pair.rt.run([](stream_pair& p) -> task<> {
    co_await send_numbers(p.a, 0, 1);
    co_await receive_numbers(p.b, 0, 1);
    queue_pair& qp = p.a.connection().qp();
    CHECK(qp.sends().in_flight() > 0);
    qp.abort({.code = errc::closed, .call = "test"});
    co_await qp.drained_event().wait();
    CHECK(qp.slots_in_use() == 0);
  }(pair));
}

TEST_CASE("a stream closes at once, though its peer grants no writes", "[rpc][device]") {
  connection_options no_writes = never_not_ready();
  no_writes.remote_access = verbs::access::none;
  test::connected_pair made{{}, no_writes, no_writes};
  message_stream a{std::move(made.client)}, b{std::move(made.server)};
  made.rt.run([](message_stream& one, message_stream& other) -> task<> {
    co_await send_numbers(one, 0, 1);
    co_await receive_numbers(other, 0, 1);
    CHECK(one.connection().qp().sends().in_flight() > 0);
    co_await one.connection().qp().sends_idle();
    CHECK(one.connection().qp().sends().in_flight() == 0);
    co_await when_all(one.close(), other.close());
  }(a, b));
}

TEST_CASE("a slice of freed memory is refused, however short", "[rpc][device][M10]") {
  stream_pair pair{smallest, smallest};
  pair.rt.run([](stream_pair& p) -> task<> {
    local_mr memory = p.rt.memory().allocate_zeroed(8);
    const local_mr_slice freed = memory.slice();
    memory.reset();
    const auto sent = co_await as_result(p.a.send(freed));
    CHECK(code_of(sent) == errc::stale_slice);
    CHECK(p.a.counters().sent == 0);
  }(pair));
}

TEST_CASE(
    "messages that arrived before the connection broke are received, however late they are "
    "looked for",
    "[rpc][device]") {
  runtime_options by_hand;
  by_hand.mode = completion_mode::manual;
  stream_pair pair{smallest, smallest, std::move(by_hand)};
  const auto poll_until = [&](auto condition) {
    while (!condition()) {
      pair.rt.poll();
      pair.rt.run(test::due_timers_fired());
    }
  };
  // Both sides know each other's terms once each has sent something.
  scope opening{pair.rt.executor()};
  opening.spawn(send_numbers(pair.a, 0, 1));
  opening.spawn(send_numbers(pair.b, 0, 1));
  poll_until([&] { return opening.running() == 0; });
  pair.rt.run(opening.join());
  pair.rt.run(send_numbers(pair.a, 1, 3));
  // An answer that comes behind them, on the other queue pair of the connection.
  poll_until([&] { return pair.b.connection().qp().receives().posted() == 0; });
  pair.b.connection().qp().abort({.code = errc::disconnected, .call = "test"});
  for (unsigned n = 0; n < 3; ++n) {
    pair.rt.poll();
    const stream_message m = pair.rt.run(pair.b.receive());
    CHECK(text_of(m.bytes()) == std::to_string(n));
  }
}

TEST_CASE("a stream needs room for its frames inline, in two pieces", "[rpc][device]") {
  connection_options narrow;
  narrow.capabilities.send_sge_max = 1;
  test::connected_pair made{{}, narrow, {}};
  const auto given = made.client.qp().verbs().capabilities().send_sge_max;
  if (given > 1) CORDMA_SKIP("the device gives more pieces than were asked for");
  CHECK_THROWS_WITH((message_stream{std::move(made.client)}), Catch::Contains("send_sge_max"));
}

TEST_CASE("behind a message that was lost with the connection none is delivered", "[rpc][device]") {
  stream_pair pair{smallest, smallest};
  pair.rt.run([](stream_pair& p) -> task<> {
    executor& home = p.rt.executor();
    const auto large = pattern(large_bytes, 9);
    scope sends{home};
    const auto send = [&p](std::span<const std::byte> bytes) -> task<> {
      static_cast<void>(co_await as_result(p.a.send(bytes)));
    };
    co_await p.a.send(bytes_of("zero"));
    static_cast<void>(co_await p.b.receive());
    const auto one = bytes_of("one");
    const auto two = bytes_of("two");
    sends.spawn(send(one));
    sends.spawn(send(large));
    sends.spawn(send(two));
    // Nothing of it has been reaped there.
    p.b.connection().qp().abort({.code = errc::device_failed, .call = "test"});
    co_await sends.join();
    co_await p.b.connection().qp().drained_event().wait();
    for (int n = 0; n < 4; ++n) {
      auto m = co_await as_result(p.b.receive());
      if (m.has_value()) CHECK(text_of(m->bytes()) == "one");
    }
  }(pair));
}
