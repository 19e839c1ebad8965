// The end of a stream's connection leaves messages that came, and nobody who waits.
#include <cordma/messages/message_stream.hpp>

#include <support/stream_pair.hpp>

#include <catch2/catch.hpp>

#include <span>
#include <string>

using namespace cordma;
using namespace test::streams;

TEST_CASE("a message that is kept outlives its stream and its connection", "[messages][device]") {
  stream_pair pair{smallest, smallest};
  const auto all = seeded_bytes(large_bytes, 1);
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

TEST_CASE("when the connection ends, what waits ends, and what came can still be taken",
          "[messages][device]") {
  stream_pair pair{smallest, smallest};
  pair.rt.run([](stream_pair& p) -> task<> {
    co_await send_numbers(p.a, 0, 2);
    const auto bytes = seeded_bytes(large_bytes, 9);
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

TEST_CASE("what was sent without a completion entry ends with its connection",
          "[messages][device]") {
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

TEST_CASE("a stream closes at once, though its peer grants no writes", "[messages][device]") {
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

TEST_CASE(
    "messages that arrived before the connection broke are received, however late they are "
    "looked for",
    "[messages][device]") {
  runtime_options by_hand;
  by_hand.cq.mode = completion_mode::manual;
  stream_pair pair{smallest, smallest, std::move(by_hand)};
  const auto poll_until = [&](auto condition) {
    while (!condition()) {
      pair.rt.poll();
      pair.rt.run(test::due_timers_fired());
    }
  };
  // The sides know each other's terms once each has sent something.
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

TEST_CASE("behind a message that was lost with the connection none is delivered",
          "[messages][device]") {
  stream_pair pair{smallest, smallest};
  pair.rt.run([](stream_pair& p) -> task<> {
    cordma::executor& executor = p.rt.executor();
    const auto large = seeded_bytes(large_bytes, 9);
    scope sends{executor};
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
    // That side has reaped no part of it.
    p.b.connection().qp().abort({.code = errc::device_failed, .call = "test"});
    co_await sends.join();
    co_await p.b.connection().qp().drained_event().wait();
    for (int n = 0; n < 4; ++n) {
      auto m = co_await as_result(p.b.receive());
      if (m.has_value()) CHECK(text_of(m->bytes()) == "one");
    }
  }(pair));
}
