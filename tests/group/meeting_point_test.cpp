// Ranks that meet at rank 0's address: on one runtime, and in processes.
#include "meetings.hpp"

#include "group/meeting_frame.hpp"
#include "reserved_port.hpp"
#include "support/outcome.hpp"
#include "support/peer_process.hpp"
#include "support/text.hpp"
#include "support/until.hpp"

#include <cordma/coro/when_all.hpp>
#include <cordma/messages/message_stream.hpp>

#include <array>
#include <chrono>
#include <list>

using namespace cordma;
using namespace std::chrono_literals;
using test::code_of;
using test::failure_of;

namespace {

std::vector<meeting> meetings_at(const endpoint& where, unsigned size) {
  std::vector<meeting> ranks;
  for (unsigned rank = 0; rank < size; ++rank) ranks.push_back(meeting::at(where, rank, size));
  return ranks;
}

group_options waiting(time_span limit) {
  group_options options;
  options.join_timeout = limit;
  return options;
}

/// Meets as a rank of its own in a process.
task<> meet_in_process(runtime& rt, std::uint16_t port, unsigned rank, unsigned size) {
  const endpoint where{"127.0.0.1", port};
  const detail::roster all = co_await test::meet(meeting::at(where, rank, size), rt,
                                                 test::patient(), test::some_member(rank));
  if (all.rank != rank || all.members.size() != size) throw std::runtime_error{"another roster"};
}

}  // namespace

TEST_CASE("ranks meet where rank 0 listens", "[group][device]") {
  runtime rt{test::on_test_device()};
  const test::reserved_port port;
  test::check_rosters(test::meet_all(rt, meetings_at(port.address(), 6)));
}

TEST_CASE("ranks meet at a Unix socket", "[group][device]") {
  runtime rt{test::on_test_device()};
  test::check_rosters(test::meet_all(rt, meetings_at(test::unix_address(), 3)));
}

TEST_CASE("a roster that needs many messages comes whole", "[group][device]") {
  constexpr unsigned size = 40;
  runtime rt{test::on_test_device()};
  const test::reserved_port port;
  const auto long_member = [](unsigned rank) {
    return detail::group_member{std::string(290, 'x') + ":" + std::to_string(4000 + rank), rank};
  };
  const auto ranks = meetings_at(port.address(), size);
  std::vector<detail::roster> all(size);
  rt.run(with_scope([&](scope& running) -> task<> {
    for (unsigned rank = 0; rank < size; ++rank) {
      running.spawn([&, rank]() -> task<> {
        all[rank] = co_await test::meet(ranks[rank], rt, test::patient(), long_member(rank));
      });
    }
    co_return;
  }));
  for (const detail::roster& one : all) {
    REQUIRE(one.members.size() == size);
    for (unsigned rank = 0; rank < size; ++rank)
      CHECK(one.members[rank].endpoint == long_member(rank).endpoint);
  }
}

TEST_CASE("two groups that meet at one address one after the other have other names",
          "[group][device]") {
  runtime rt{test::on_test_device()};
  const test::reserved_port port;
  const auto first = test::meet_all(rt, meetings_at(port.address(), 2));
  const auto second = test::meet_all(rt, meetings_at(port.address(), 2));
  CHECK((*first[0]).name != (*second[0]).name);
}

TEST_CASE("rank 0 may come last", "[group][device]") {
  manual_clock clock;
  runtime rt{test::on_test_device(test::by_hand(clock))};
  const test::reserved_port port;
  const auto ranks = meetings_at(port.address(), 2);
  std::vector<result<detail::roster>> all(2, cancelled_result);
  const auto meet = [&](unsigned rank) -> task<> {
    all[rank] =
        co_await as_result(test::meet(ranks[rank], rt, test::patient(), test::some_member(rank)));
  };
  rt.run(with_scope([&](scope& running) -> task<> {
    running.spawn(meet(1));
    // The other timers are of seconds: rank 1 pauses, as it has found nobody.
    constexpr auto longest_pause = 500ms;
    cordma::executor& executor = rt.executor();
    co_await test::until(executor,
                         [&] { return executor.next_deadline() <= clock.now() + longest_pause; });
    running.spawn(meet(0));
    co_await test::due_timers_fired();  // Rank 0 listens from here on.
    clock.advance(longest_pause);
  }));
  test::check_rosters(std::move(all));
}

TEST_CASE("a rank that does not find rank 0 in time says where it looked, and why",
          "[group][device]") {
  runtime rt{test::on_test_device()};
  const test::reserved_port port;
  const failure f = failure_of([&] {
    rt.run(test::meet(meeting::at(port.address(), 1, 2), rt, waiting(20ms), test::some_member(1)));
  });
  CHECK(f.code == errc::timed_out);
  CHECK_THAT(f.to_string(), Catch::Contains("rank 1 of 2 could not reach rank 0 at 127.0.0.1:") &&
                                Catch::Contains("within 20 ms") &&
                                Catch::Contains("Connection refused"));
}

TEST_CASE("rank 0 names the ranks that did not come", "[group][device]") {
  runtime rt{test::on_test_device()};
  const test::reserved_port port;
  const failure f = failure_of([&] {
    rt.run(test::meet(meeting::at(port.address(), 0, 3), rt, waiting(5ms), test::some_member(0)));
  });
  CHECK(f.code == errc::timed_out);
  CHECK_THAT(f.to_string(), Catch::Contains("ranks 1, 2 of 3 did not come to 127.0.0.1:"));
}

TEST_CASE("a rank that has come is told how long it waited for the others", "[group][device]") {
  manual_clock clock;
  runtime rt{test::on_test_device(test::by_hand(clock))};
  const test::reserved_port port;
  listener acceptor = rt.listen(port.address());
  failure f;
  const auto join = [&]() -> task<> {
    const auto got = co_await as_result(
        test::meet(meeting::at(port.address(), 1, 3), rt, waiting(9s), test::some_member(1)));
    f = got.failure();
  };
  const auto say_nothing = [&]() -> task<> {
    message_stream peer{co_await acceptor.accept()};
    const stream_message arrival = co_await peer.receive();
    CHECK(detail::meeting_frame::decode_arrival(arrival.bytes()).rank == 1);
    while (!f.code) {
      clock.advance(1s);
      co_await test::due_timers_fired();
    }
  };
  rt.run(when_all(join(), say_nothing()));
  CHECK(f.code == errc::timed_out);
  CHECK_THAT(f.to_string(), Catch::Contains("rank 1 of 3 came to 127.0.0.1:") &&
                                Catch::Contains("not all ranks did within 9000 ms"));
}

TEST_CASE("a rank whose rank 0 is lost hears so at once", "[group][device]") {
  runtime rt{test::on_test_device()};
  const test::reserved_port port;
  listener acceptor = rt.listen(port.address());
  const auto leave = [&]() -> task<> {
    message_stream peer{co_await acceptor.accept()};
    static_cast<void>(co_await peer.receive());
  };
  auto [got, none] = rt.run(when_all(as_result(test::meet(meeting::at(port.address(), 1, 2), rt,
                                                          test::patient(), test::some_member(1))),
                                     leave()));
  REQUIRE(code_of(got) == errc::disconnected);
  CHECK_THAT(got.failure().to_string(), Catch::Contains("rank 0 at 127.0.0.1:"));
}

TEST_CASE("a rank 0 that sends anything else is refused", "[group][device]") {
  runtime rt{test::on_test_device()};
  const test::reserved_port port;
  listener acceptor = rt.listen(port.address());
  const auto answer = [&]() -> task<> {
    message_stream peer{co_await acceptor.accept()};
    static_cast<void>(co_await peer.receive());
    co_await peer.send(test::bytes_of("220 smtp.example.org"));
    co_await peer.close();
  };
  auto [got, none] = rt.run(when_all(as_result(test::meet(meeting::at(port.address(), 1, 2), rt,
                                                          test::patient(), test::some_member(1))),
                                     answer()));
  REQUIRE(code_of(got) == errc::bad_message);
  CHECK_THAT(got.failure().to_string(),
             Catch::Contains("rank 0 at 127.0.0.1:") && Catch::Contains("no mark of a group"));
}

TEST_CASE("ranks that think of another size hear both sizes", "[group][device]") {
  runtime rt{test::on_test_device()};
  const test::reserved_port port;
  const auto all =
      test::meet_all(rt, {meeting::at(port.address(), 0, 2), meeting::at(port.address(), 1, 3),
                          meeting::at(port.address(), 1, 2)});
  CHECK(all[0].has_value());
  REQUIRE(code_of(all[1]) == errc::refused);
  CHECK_THAT(all[1].failure().to_string(), Catch::Contains("for a group of 3, but 2 ranks meet"));
}

TEST_CASE("a stranger that sends no handshake keeps no rank out", "[group][device]") {
  runtime rt{test::on_test_device()};
  const test::reserved_port port;
  rt.run(with_scope([&](scope& running) -> task<> {
    running.spawn([&]() -> task<> {
      static_cast<void>(co_await test::meet(meeting::at(port.address(), 0, 2), rt, test::patient(),
                                            test::some_member(0)));
    });
    co_await sleep_for(duration{0});  // Rank 0 listens from here on.
    const unique_fd stranger = test::dial(port.address());
    constexpr std::string_view garbage = "GET / HTTP/1.1\r\nHost: here\r\n\r\n";
    CHECK(::write(stranger.get(), garbage.data(), garbage.size()) == ssize_t(garbage.size()));
    const auto got = co_await as_result(
        test::meet(meeting::at(port.address(), 1, 2), rt, test::patient(), test::some_member(1)));
    CHECK(got.has_value());
  }));
}

TEST_CASE("a rank 0 that is stopped frees its address", "[group][device]") {
  runtime rt{test::on_test_device()};
  const test::reserved_port port;
  bool is_refused = false;
  rt.run(with_scope([&](scope& running) -> task<> {
    running.spawn(
        test::meet(meeting::at(port.address(), 0, 3), rt, test::patient(), test::some_member(0)));
    // Two say that they are rank 1, and one of them is refused when the other has come.
    for (int n = 0; n < 2; ++n) {
      running.spawn([&]() -> task<> {
        const auto outcome = co_await as_result(test::meet(meeting::at(port.address(), 1, 3), rt,
                                                           test::patient(), test::some_member(1)));
        is_refused = is_refused || code_of(outcome) == errc::refused;
        if (is_refused) running.request_stop();
      });
    }
    co_return;
  }));
  CHECK(is_refused);
  CHECK_NOTHROW(rt.listen(port.address()));
}

TEST_CASE("an address that is taken is named", "[group][device]") {
  runtime rt{test::on_test_device()};
  const test::reserved_port port;
  const listener other = rt.listen(port.address());
  const failure f = failure_of([&] {
    rt.run(
        test::meet(meeting::at(port.address(), 0, 2), rt, test::patient(), test::some_member(0)));
  });
  CHECK(f.code == std::error_code{EADDRINUSE, std::system_category()});
  CHECK_THAT(f.to_string(), Catch::Contains(port.address().to_string()));
}

TEST_CASE("a meeting that others can reach wants credentials", "[group][device]") {
  runtime rt{test::on_test_device()};
  const test::reserved_port port;
  const endpoint everywhere{"0.0.0.0", port.number()};
  CHECK(failure_of([&] {
          rt.run(
              test::meet(meeting::at(everywhere, 0, 2), rt, test::patient(), test::some_member(0)));
        }).code == errc::not_authenticated);
}

TEST_CASE("ranks listen on loopback when they meet there, else where others reach them",
          "[group][device]") {
  runtime rt{test::on_test_device()};
  const auto where = [&](const char* address) {
    const meeting own = meeting::at(address, 1, 2);
    return rt.run(own.kind().where_to_listen(rt));
  };
  CHECK(where("127.0.0.1:7000") == endpoint{"127.0.0.1", 0});
  CHECK(where("unix:@here") == endpoint{"127.0.0.1", 0});
  CHECK(where("rdma_cm:127.0.0.1:7000") == endpoint{"rdma_cm:127.0.0.1:0"});
  CHECK(where("192.0.2.1:7000").port == 0);
}

TEST_CASE("an address where ranks cannot meet is refused when it is given", "[group]") {
  CHECK(failure_of([] { meeting::at("node1:7000", 2, 2); }).code == errc::out_of_range);
  CHECK_THAT(failure_of([] { meeting::at("node1:0", 0, 2); }).to_string(),
             Catch::Contains("'node1:0' has no port"));
  CHECK_THAT(failure_of([] { meeting::at("0.0.0.0:7000", 1, 2); }).to_string(),
             Catch::Contains("no address that others can connect to"));
  CHECK_NOTHROW(meeting::at("0.0.0.0:7000", 0, 2));
}

TEST_CASE("a group of one rank at an address needs nobody, and listens nowhere",
          "[group][device]") {
  runtime rt{test::on_test_device()};
  const test::reserved_port port;
  const listener other = rt.listen(port.address());
  test::check_rosters(test::meet_all(rt, meetings_at(port.address(), 1)));
}

TEST_CASE("ranks in processes of their own meet", "[group][device]") {
  constexpr unsigned size = 4;
  std::list<test::peer_process> others;
  for (unsigned rank = 1; rank < size; ++rank) {
    others.emplace_back([rank](runtime& rt, std::uint16_t port, const auto& tell) -> task<> {
      co_await meet_in_process(rt, port, rank, size);
      tell(std::uint16_t(rank));
    });
  }
  runtime rt{test::on_test_device()};
  const test::reserved_port port;
  for (test::peer_process& one : others) one.start(port.number());
  rt.run(meet_in_process(rt, port.number(), 0, size));
  unsigned next = 1;
  for (test::peer_process& one : others) CHECK(one.told_port() == next++);
}
