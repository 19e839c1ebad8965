// Ranks, and peers that say anything, at rank 0's registry.
#include "group/meeting_registry.hpp"

#include "group/meeting_frame.hpp"
#include "group/meeting_member.hpp"
#include "meetings.hpp"
#include "support/outcome.hpp"
#include "support/peer_process.hpp"
#include "support/text.hpp"
#include "support/until.hpp"

#include <cordma/coro/when_all.hpp>

#include <chrono>
#include <optional>

using namespace cordma;
using namespace std::chrono_literals;
using detail::meeting_registry;
namespace frame = detail::meeting_frame;

namespace {

frame::bytes arrival_of(unsigned rank, unsigned size) {
  return frame::encode(frame::arrival{rank, size, test::some_member(rank)});
}

/// Rank 0 of a group, and peers that connect to it. The clock stands still.
struct convention {
  explicit convention(unsigned group_size)
      : size{group_size}, all{size, test::some_member(0), 60s} {}

  void run(auto body) {
    rt.run(with_scope([&](scope& running) -> task<> {
      running.spawn(cordma::serve(
          acceptor, [this](connection conn) { return all.serve(std::move(conn)); },
          [this](const handler_failure& f) { all.on_failure(f); }));
      co_await body();
      acceptor.close();
    }));
  }
  /// Waits until so many ranks are missing.
  auto are_missing(std::size_t count) {
    return test::until(rt.executor(), [this, count] { return all.missing().size() == count; });
  }

  task<message_stream> send(frame::bytes message) {
    message_stream peer{co_await rt.connect(acceptor.local_endpoint())};
    co_await peer.send(message);
    co_return peer;
  }
  task<message_stream> send_rank(unsigned rank) { return send(arrival_of(rank, size)); }

  /// Checks that a peer is turned away, and told so.
  task<> check_refused(message_stream& peer, std::string why) const {
    const stream_message answer = co_await peer.receive();
    detail::roster got;
    const failure f = test::failure_of([&] { frame::decode_part(answer.bytes(), got, size); });
    CHECK(f.code == errc::refused);
    CHECK_THAT(f.to_string(), Catch::Contains("rank 0 says: ") && Catch::Contains(why));
  }
  task<> refuses(frame::bytes message, std::string why) {
    message_stream peer = co_await send(std::move(message));
    co_await check_refused(peer, std::move(why));
  }
  /// Checks that a peer is told of all ranks.
  task<> check_told(message_stream& peer) const {
    detail::roster got;
    while (got.members.size() < size) {
      const stream_message part = co_await peer.receive();
      frame::decode_part(part.bytes(), got, size);
    }
    for (unsigned rank = 0; rank < size; ++rank)
      CHECK(got.members[rank].endpoint == test::some_member(rank).endpoint);
  }

  const unsigned size;
  manual_clock clock;
  runtime rt{test::on_test_device(test::by_hand(clock))};
  listener acceptor{rt.listen()};
  meeting_registry all;
};

}  // namespace

TEST_CASE("ranks are told of each other once all have come", "[group][device]") {
  convention c{3};
  c.run([&]() -> task<> {
    message_stream two = co_await c.send_rank(2);
    co_await c.are_missing(1);
    CHECK(c.all.missing() == std::vector{1U});
    CHECK_FALSE(c.all.has_ended().is_set());
    message_stream one = co_await c.send_rank(1);
    co_await c.check_told(two);
    co_await c.check_told(one);
  });
  CHECK(c.all.missing().empty());
  CHECK(std::move(c.all).take().members.size() == 3);
}

TEST_CASE("a peer that is no rank of the group is told so, and the next is served",
          "[group][device]") {
  convention c{2};
  c.run([&]() -> task<> {
    co_await c.refuses(arrival_of(1, 3), "rank 1 has come for a group of 3, but 2 ranks meet here");
    co_await c.refuses(arrival_of(2, 2), "there is no rank 2 in a group of 2");
    co_await c.refuses(arrival_of(0, 2), "rank 0 has come already");
    co_await c.refuses(test::bytes_of("GET / HTTP/1.1\r\n"), "no mark of a group");
    CHECK_THAT(c.all.last_failure(),
               Catch::StartsWith("127.0.0.1:") && Catch::Contains("no mark of a group"));
    CHECK(c.all.missing() == std::vector{1U});
    message_stream one = co_await c.send_rank(1);
    co_await c.check_told(one);
  });
}

TEST_CASE("a rank that is there already keeps another of the same number out", "[group][device]") {
  convention c{3};
  c.run([&]() -> task<> {
    message_stream first = co_await c.send_rank(1);
    co_await c.are_missing(1);
    co_await c.refuses(arrival_of(1, 3), "rank 1 has come already: it listens at 10.0.0.1:4001");
    message_stream two = co_await c.send_rank(2);
    co_await c.check_told(first);
  });
}

TEST_CASE("a rank that is lost before all have come may come again", "[group][device]") {
  convention c{3};
  c.run([&]() -> task<> {
    std::optional<message_stream> lost = co_await c.send_rank(1);
    co_await c.are_missing(1);
    lost.reset();
    co_await c.are_missing(2);
    message_stream two = co_await c.send_rank(2);
    message_stream again = co_await c.send_rank(1);
    co_await c.check_told(again);
  });
}

TEST_CASE("a rank that says more than that it has come is turned away", "[group][device]") {
  convention c{3};
  c.run([&]() -> task<> {
    message_stream one = co_await c.send_rank(1);
    co_await c.are_missing(1);
    const std::vector<std::byte> more = test::bytes_of("more");
    co_await one.send(more);
    co_await c.check_refused(one, "says nothing more");
    CHECK(c.all.missing().size() == 2);
  });
}

TEST_CASE("a peer that says nothing is turned away in time", "[group][device]") {
  convention c{2};
  c.run([&]() -> task<> {
    message_stream silent{co_await c.rt.connect(c.acceptor.local_endpoint())};
    bool is_told = false;
    const auto hear = [&]() -> task<> {
      co_await c.check_refused(silent, "a peer that did not say");
      is_told = true;
    };
    const auto advance = [&]() -> task<> {
      while (!is_told) {
        c.clock.advance(1ms);
        co_await test::due_timers_fired();
      }
    };
    co_await when_all(hear(), advance());
  });
}

TEST_CASE("ranks that wait are told who is missing", "[group][device]") {
  convention c{3};
  c.run([&]() -> task<> {
    message_stream one = co_await c.send_rank(1);
    co_await c.are_missing(1);
    c.all.refuse(detail::missing_ranks("meeting::at", c.all.missing(), 3, 1s));
    co_await c.check_refused(one, "rank 2 of 3 did not come within 1000 ms");
    co_await c.refuses(arrival_of(2, 3), "rank 2 of 3 did not come");
  });
  CHECK(c.all.missing() == std::vector{2U});
}

TEST_CASE("a rank that is lost after all have come stays in the roster", "[group][device]") {
  convention c{3};
  c.run([&]() -> task<> {
    std::optional<message_stream> lost = co_await c.send_rank(1);
    co_await c.are_missing(1);
    message_stream two = co_await c.send_rank(2);
    co_await c.all.has_ended().wait();
    lost.reset();
    co_await c.check_told(two);
  });
  CHECK(c.all.missing().empty());
}

TEST_CASE("the rank of a process that is killed may be another's", "[group][device]") {
  constexpr unsigned size = 3;
  const auto rank_1 = [](runtime& rt, std::uint16_t port, const auto& tell) -> task<> {
    const meeting where = meeting::at({"127.0.0.1", port}, 1, size);
    const detail::roster all =
        co_await test::meet(where, rt, test::patient(), test::some_member(1));
    tell(std::uint16_t(all.members.size()));
  };
  test::peer_process killed{rank_1};
  test::peer_process again{rank_1};
  convention c{size};
  c.run([&]() -> task<> {
    killed.start(c.acceptor.local_endpoint().port);
    co_await c.are_missing(1);
    killed.kill();
    co_await c.are_missing(2);
    again.start(c.acceptor.local_endpoint().port);
    co_await c.are_missing(1);
    message_stream two = co_await c.send_rank(2);
    co_await c.check_told(two);
  });
  CHECK(again.told_port() == size);
}
