// A stream that sends more than its peer has room for waits, and goes on when there is room.
#include <cordma/messages/message_stream.hpp>

#include <support/stream_pair.hpp>

#include <catch2/catch.hpp>

#include <string>
#include <vector>

using namespace cordma;
using namespace test::streams;

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
  // Each message that is dropped makes room for one, even though nothing else tells the peer.
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
          "[messages][device][P5]") {
  stream_pair p{smallest, smallest};
  p.rt.run(fill_and_drain(p));
}

TEST_CASE("two whose inboxes are full can both go on when one of them takes a message",
          "[messages][device]") {
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

TEST_CASE("a credit frame under way takes no message's place", "[messages][device][P5]") {
  stream_pair pair{smallest, smallest};
  pair.rt.run([](stream_pair& p) -> task<> {
    // One message in the other direction, whose end is told by a credit frame alone.
    co_await pass(p.b, p.a, bytes_of("first"));
    co_await test::until(p.rt.executor(), [&] { return p.a.counters().credit_frames > 0; });
    co_await fill_and_drain(p);
  }(pair));
}
