// A message stream as programs meet it: what is sent arrives, and who waits can stop.
#include <cordma/messages/message_stream.hpp>

#include "messages/message_channel.hpp"

#include <support/allocations.hpp>
#include <support/skip.hpp>
#include <support/stream_pair.hpp>

#include <catch2/catch.hpp>

#include <cordma/coro/when_all.hpp>

#include <string>
#include <vector>

using namespace cordma;
using namespace test::streams;

TEST_CASE("messages arrive whole, in order, with their immediates, both ways at once",
          "[messages][device]") {
  stream_pair p;
  p.rt.run(both_ways(p.a, p.b, 1000));
  CHECK(p.a.counters().sent == 1000);
  CHECK(p.b.counters().received == 1000);
  CHECK(p.a.counters().large_sent == 0);
}

TEST_CASE("a message of any size arrives intact", "[messages][device]") {
  stream_pair p{{.buffer_bytes = 256}, {.buffer_bytes = 1000}};
  unsigned seed = 0;
  for (const size_t size :
       {size_t{0}, size_t{1}, size_t{55}, size_t{56}, size_t{57}, size_t{255}, size_t{256},
        size_t{257}, size_t{999}, size_t{1000}, size_t{1001}, size_t{4096}, size_t{1} << 20}) {
    const auto bytes = seeded_bytes(size, ++seed);
    INFO(size);
    p.rt.run(pass(p.a, p.b, bytes));
    p.rt.run(pass(p.b, p.a, bytes));
    local_mr memory = p.rt.memory().allocate_uninitialized(std::max(size, size_t{1}));
    std::ranges::copy(bytes, memory.bytes().begin());
    p.rt.run(pass_memory(p.a, p.b, memory.first(size)));
  }
}

TEST_CASE("a message arrives intact, be it inline in one piece, in two, or copied",
          "[messages][device]") {
  connection_options wide = never_not_ready();
  wide.capabilities.inline_max = 128;
  test::connected_pair made{{}, wide, wide};
  message_stream a{std::move(made.client)}, b{std::move(made.server)};
  // A header takes 8 of the bytes.
  const size_t most = a.connection().qp().verbs().capabilities().inline_max - 8;
  REQUIRE(most >= 120);
  for (const size_t size : {size_t{56}, size_t{57}, most, most + 1}) {
    const auto bytes = seeded_bytes(size, unsigned(size));
    INFO(size);
    made.rt.run(pass(a, b, bytes));
  }
}

TEST_CASE("who sends before the peer has a stream waits for it, and finds it ready",
          "[messages][device]") {
  test::connected_pair pair{{}, never_not_ready(), never_not_ready()};
  message_stream first{std::move(pair.client)};
  pair.rt.run([](test::connected_pair& p, message_stream& early) -> task<> {
    scope sending{p.rt.executor()};
    sending.spawn(send_numbers(early, 0, 3));
    // `early` was told nothing, and a whole round trip on the same queue pair is over.
    const auto beat = co_await as_result(early.connection().write(const_local_mr_slice{}, {}));
    CHECK(beat.has_value());
    CHECK(early.counters().sent == 0);
    message_stream late{std::move(p.server)};
    co_await receive_numbers(late, 0, 3);
    co_await sending.join();
  }(pair, first));
}

namespace {

task<> take_with_stops(message_stream& s, cordma::executor& executor, unsigned count,
                       unsigned& stops) {
  unsigned step = 0;
  for (unsigned n = 0; n < count;) {
    auto first = co_await when_any(
        s.receive(), test::until(executor, [left = ++step % 4]() mutable { return left-- == 0; }));
    if (first.index() == 0)
      CHECK(text_of(std::get<0>(first).bytes()) == std::to_string(n++));
    else
      ++stops;
  }
}

}  // namespace

TEST_CASE("a stopped receive loses no message", "[messages][device]") {
  stream_pair p{smallest, smallest};
  unsigned stops = 0;
  p.rt.run(when_all(send_numbers(p.a, 0, 500), take_with_stops(p.b, p.rt.executor(), 500, stops)));
  CHECK(stops > 0);
  CHECK(p.b.counters().received == 500);
}

TEST_CASE("several who receive share the messages, each of which one of them gets",
          "[messages][device]") {
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

TEST_CASE("a stopped send is sent or is not, and those behind it go on", "[messages][device]") {
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

TEST_CASE("a message can be sent on from where it arrived", "[messages][device]") {
  stream_pair pair{smallest, smallest};
  const auto all = seeded_bytes(large_bytes, 9);
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

TEST_CASE("a stream's messages are not for the connection's own receives", "[messages][device]") {
  stream_pair pair;
  pair.rt.run([](stream_pair& p) -> task<> {
    const auto got = co_await as_result(p.b.connection().next_message());
    CHECK(code_of(got) == errc::refused);
    co_await pass(p.a, p.b, bytes_of("still there"));
  }(pair));
}

TEST_CASE("a stream needs an agent on both sides", "[messages][device]") {
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

TEST_CASE("stream options out of range are refused by name", "[messages][device]") {
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
  CHECK(refusal({.large_ahead = 65}).find("large_ahead") != std::string::npos);
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

TEST_CASE("a message that fits a buffer costs no allocation once all is warm",
          "[messages][device]") {
  if (!support::counts_allocations()) CORDMA_SKIP("allocations are not counted here");
  stream_pair p;
  const auto bytes = seeded_bytes(4096, 1);
  for (const size_t size : {size_t{32}, bytes.size()}) {
    INFO(size);
    const std::span<const std::byte> part = std::span{bytes}.first(size);
    p.rt.run(exchange(p, part, 200));
    const std::uint64_t before = support::thread_allocation_count();
    p.rt.run(exchange(p, part, 200));
    CHECK(support::thread_allocation_count() - before == 0);
  }
}

namespace {

task<> write_for_ever(connection& c, bool& is_over) {
  while (!is_over) co_await c.write(const_local_mr_slice{}, {});
}

}  // namespace

TEST_CASE("messages get their turn while others fill the send queue", "[messages][device]") {
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

TEST_CASE("a slice of freed memory is refused, however short", "[messages][device][M10]") {
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

TEST_CASE("a stream needs room for its frames inline, in two pieces", "[messages][device]") {
  connection_options narrow;
  narrow.capabilities.send_sge_max = 1;
  test::connected_pair made{{}, narrow, {}};
  const auto given = made.client.qp().verbs().capabilities().send_sge_max;
  if (given > 1) CORDMA_SKIP("the device gives more pieces than were asked for");
  CHECK_THROWS_WITH((message_stream{std::move(made.client)}), Catch::Contains("send_sge_max"));
}
