#include <cordma/rpc/server.hpp>

#include <support/foreign_task.hpp>
#include <support/manual_executor.hpp>
#include <support/outcome.hpp>
#include <support/rpc_pair.hpp>

#include <catch2/catch.hpp>

#include <cerrno>
#include <string>
#include <utility>
#include <vector>

using namespace cordma;
using namespace std::chrono_literals;
using test::code_of;

namespace {

using support::started;
using test::rpc_server;
using test::wait_for;

/// Calls of one client, each with a number of its own.
struct calls {
  calls(rpc_server& s, rpc::client& c, std::uint32_t first, std::uint32_t count) {
    for (std::uint32_t n = first; n < first + count; ++n)
      all.push_back(std::make_unique<started<rpc::detail::call_op<wait_for>>>(s.rt.executor(),
                                                                              c.call<wait_for>(n)));
  }
  [[nodiscard]] bool have_ended() const {
    return std::ranges::all_of(all, [](const auto& c) { return c->has_ended(); });
  }
  std::vector<std::unique_ptr<started<rpc::detail::call_op<wait_for>>>> all;
};

int (*real_post_send)(ibv_qp*, ibv_send_wr*, ibv_send_wr**) = nullptr;
int refuse_once(ibv_qp* qp, ibv_send_wr* wr, ibv_send_wr** bad) {
  qp->context->ops.post_send = real_post_send;
  *bad = wr;
  return ENOMEM;
}

}  // namespace

TEST_CASE("an answer that the device refuses to send ends the connection, and the call once",
          "[rpc][device][P3]") {
  rpc_server s;
  rpc::client c = s.make_client();
  calls one{s, c, 1, 1};
  s.rt.run(test::until(s.rt.executor(), [&] { return s.running == 1; }));
  auto& post_send = s.rt.context().native_handle()->ops.post_send;
  real_post_send = std::exchange(post_send, &refuse_once);
  s.gate(1).set();
  s.rt.run(test::until(s.rt.executor(), [&] { return one.have_ended() && s.lost == 1; }));
  CHECK(post_send == real_post_send);
  CHECK((**one.all[0]).take_result().has_failure());
  CHECK(s.server.counters().running == 0);
  CHECK(s.server.counters().replied == 0);
}

TEST_CASE("a server runs no more calls of a connection than it may, and no more in all",
          "[rpc][device]") {
  rpc_server s{{.calls_per_connection_max = 3, .calls_max = 4}};
  rpc::client a = s.make_client();
  rpc::client b = s.make_client();
  s.rt.run([](rpc_server& answering, rpc::client& first, rpc::client& second) -> task<> {
    cordma::executor& executor = answering.rt.executor();
    calls of_first{answering, first, 0, 10};
    co_await test::until(executor, [&] { return answering.running == 3; });
    calls of_second{answering, second, 10, 10};
    co_await test::until(executor, [&] { return answering.running == 4; });
    // A message there and back on each: all that came has been looked at.
    co_await when_all(first.connection()->write(const_local_mr_slice{}, {}),
                      second.connection()->write(const_local_mr_slice{}, {}));
    CHECK(answering.running == 4);
    // A call of the first connection ends: it is the second connection's turn.
    answering.gate(0).set();
    co_await test::until(executor, [&] { return answering.begun == 5; });
    answering.gate(1).set();
    co_await test::until(executor, [&] { return answering.begun == 6; });
    for (std::uint32_t n = 0; n < 20; ++n) answering.gate(n).set();
    co_await test::until(executor, [&] { return of_first.have_ended() && of_second.have_ended(); });
  }(s, a, b));
  CHECK(s.most == 4);
  CHECK(s.server.counters().replied == 20);
}

TEST_CASE("beside calls that run for long others are answered, as long as there is credit",
          "[rpc][device][P5]") {
  rpc_server s;
  rpc::client c = s.make_client();
  s.rt.run([](rpc_server& answering, rpc::client& calling) -> task<> {
    cordma::executor& executor = answering.rt.executor();
    calls long_ones{answering, calling, 0, 59};
    co_await test::until(executor, [&] { return answering.running == 59; });
    const std::vector<std::byte> bytes(32);
    for (unsigned n = 0; n < 50; ++n) {
      const auto back = co_await calling.call<test::echo>(bytes);
      CHECK(back->size() == bytes.size());
    }
    for (std::uint32_t n = 0; n < 59; ++n) answering.gate(n).set();
    co_await test::until(executor, [&] { return long_ones.have_ended(); });
  }(s, c));
}

TEST_CASE("a server hears that its calls are cancelled, though every buffer is taken by one",
          "[rpc][device][P7]") {
  // Some buffers wait to be posted with others: so many at first, or fewer.
  const unsigned before = GENERATE(range(0u, 8u));
  CAPTURE(before);
  rpc_server s;
  rpc::client c = s.make_client();
  s.rt.run([](rpc_server& answering, rpc::client& calling, unsigned first) -> task<> {
    cordma::executor& executor = answering.rt.executor();
    for (; first > 0; --first) static_cast<void>(co_await calling.call<test::echo>({}));
    calls all{answering, calling, 0, 60};
    co_await test::until(executor, [&] { return answering.running == 60; });
    for (const auto& call : all.all) call->request_stop();
    co_await test::until(executor, [&] { return answering.stopped == 60 && all.have_ended(); });
  }(s, c, before));
}

TEST_CASE("large requests that calls still have are no more than large_ahead", "[rpc][device]") {
  struct hold : rpc::method<"test.hold", test::view, std::uint64_t> {};
  rpc_server s{{.stream = {.large_ahead = 2}}};
  s.server.handle<hold>([&s](test::view request) -> task<std::uint64_t> {
    co_await s.wait(7);
    co_return request.size();
  });
  rpc::client c = s.make_client();
  s.rt.run([](rpc_server& answering, rpc::client& calling) -> task<> {
    const std::vector<std::byte> large(10'000);
    unsigned ended = 0;
    const auto call = [&]() -> task<> {
      const std::uint64_t size = co_await calling.call<hold>(large);
      CHECK(size == large.size());
      ++ended;
    };
    cordma::executor& executor = answering.rt.executor();
    scope calls{executor};
    for (int n = 0; n < 5; ++n) calls.spawn(call());
    co_await test::until(executor, [&] { return answering.running == 2; });
    const auto small = co_await calling.call<test::echo>(test::view{large}.first(10));
    CHECK(small->size() == 10);
    CHECK(answering.begun == 2);
    answering.gate(7).set();
    co_await calls.join();
    CHECK(ended == 5);
  }(s, c));
}

TEST_CASE("a client that does not take an answer in time is cut off", "[rpc][device]") {
  manual_clock clock;
  rpc_server s{{.answer_timeout = 50ms}, test::by_hand(clock)};
  rpc::client c = s.make_client({.stream = {.depth = 8}});
  s.rt.run([](rpc_server& answering, rpc::client& calling, manual_clock& time) -> task<> {
    cordma::executor& executor = answering.rt.executor();
    // Four replies that are kept are all that the client has room for.
    const std::vector<std::byte> some(10);
    std::vector<rpc::viewed<test::view>> kept;
    for (int n = 0; n < 4; ++n) kept.push_back(co_await calling.call<test::echo>(some));
    started call{executor, calling.call<test::echo>(some)};
    co_await test::until(executor, [&] { return answering.server.counters().running == 1; });
    time.advance(49ms);
    co_await test::due_timers_fired();
    CHECK(answering.server.counters().running == 1);
    time.advance(1ms);
    co_await test::until(executor, [&] { return call.has_ended(); });
    CHECK(code_of((*call).take_result()) == errc::disconnected);
    co_await test::until(executor, [&] { return answering.server.counters().connections == 0; });
    CHECK(answering.lost == 1);
  }(s, c, clock));
}

TEST_CASE("a call that is given up before it has begun never runs", "[rpc][device][P7]") {
  rpc_server s{{.calls_per_connection_max = 1}};
  rpc::client c = s.make_client();
  s.rt.run([](rpc_server& answering, rpc::client& calling) -> task<> {
    cordma::executor& executor = answering.rt.executor();
    calls all{answering, calling, 1, 3};
    co_await test::until(executor, [&] { return answering.running == 1; });
    all.all[1]->request_stop();
    co_await test::until(executor, [&] { return answering.server.counters().stopped == 1; });
    for (const std::uint32_t n : {1u, 2u, 3u}) answering.gate(n).set();
    co_await test::until(executor, [&] { return all.have_ended(); });
    CHECK((**all.all[1]).take_result().is_cancelled());
    CHECK((**all.all[2]).take() == 3);
  }(s, c));
  CHECK(s.begun == 2);
}

TEST_CASE("a call's deadline stops its handler", "[rpc][device][P2]") {
  manual_clock clock;
  struct remaining_time : rpc::method<"test.look", rpc::nothing, std::uint64_t> {};
  rpc_server s{{}, test::by_hand(clock)};
  s.server.handle<remaining_time>([](rpc::nothing, rpc::server_call& call) -> task<std::uint64_t> {
    co_return std::uint64_t(call.remaining() / 1ms);
  });
  rpc::client c = s.make_client();
  s.rt.run([](rpc_server& answering, rpc::client& calling, manual_clock& time) -> task<> {
    cordma::executor& executor = answering.rt.executor();
    const std::uint64_t remaining = co_await calling.call<remaining_time>({}, {.timeout = 70ms});
    CHECK(remaining == 70);
    started call{executor, calling.call<wait_for>(1, {.timeout = 50ms})};
    co_await test::until(executor, [&] { return answering.running == 1; });
    time.advance(49ms);
    co_await test::due_timers_fired();
    CHECK(answering.stopped == 0);
    time.advance(1ms);
    co_await test::until(executor, [&] { return answering.stopped == 1 && call.has_ended(); });
    CHECK(code_of((*call).take_result()) == errc::timed_out);
  }(s, c, clock));
}

TEST_CASE("a server that drains finishes what runs, refuses the rest, and closes",
          "[rpc][device]") {
  rpc_server s;
  rpc::client c = s.make_client();
  rpc::client idle = s.make_client();
  s.rt.run([](rpc_server& answering, rpc::client& calling) -> task<> {
    cordma::executor& executor = answering.rt.executor();
    calls all{answering, calling, 1, 1};
    co_await test::until(executor, [&] {
      return answering.running == 1 && answering.server.counters().connections == 2;
    });
    started draining{executor, answering.server.drain()};
    const auto refused = co_await as_result(calling.call<wait_for>(2));
    CHECK(code_of(refused) == errc::shutting_down);
    CHECK(!draining.has_ended());
    answering.gate(1).set();
    co_await test::until(executor, [&] { return draining.has_ended(); });
    CHECK(all.have_ended());
    CHECK((**all.all[0]).take() == 1);
    CHECK(answering.server.counters().connections == 0);
    const auto later = co_await as_result(calling.call<wait_for>(3));
    CHECK(code_of(later) == errc::disconnected);
  }(s, c));
  CHECK(s.begun == 1);
}

TEST_CASE("a call that waits for others' when its server drains is told that it has not run",
          "[rpc][device]") {
  rpc_server s{{.calls_max = 1}};
  rpc::client a = s.make_client(), b = s.make_client();
  s.rt.run([](rpc_server& answering, rpc::client& first, rpc::client& second) -> task<> {
    cordma::executor& executor = answering.rt.executor();
    calls runs{answering, first, 1, 1};
    co_await test::until(executor, [&] { return answering.running == 1; });
    calls waits{answering, second, 2, 1};
    // The WRITE goes behind the call, so that the call has come.
    co_await second.connection()->write(const_local_mr_slice{}, {});
    started draining{executor, answering.server.drain()};
    co_await test::until(executor, [&] { return waits.have_ended(); });
    CHECK(code_of((**waits.all[0]).take_result()) == errc::shutting_down);
    answering.gate(1).set();
    co_await test::until(executor, [&] { return draining.has_ended() && runs.have_ended(); });
    CHECK((**runs.all[0]).take() == 1);
  }(s, a, b));
  CHECK(s.begun == 1);
}

TEST_CASE("a server drains as patiently for a coroutine that has no scheduler", "[rpc][device]") {
  rpc_server s;
  rpc::client c = s.make_client();
  bool has_drained = false;
  const auto drain = [](rpc_server& answering, bool& done) -> support::foreign_task {
    co_await answering.server.drain();
    done = true;
  };
  s.rt.run([](rpc_server& answering, rpc::client& calling, auto begin, bool& done) -> task<> {
    cordma::executor& executor = answering.rt.executor();
    calls all{answering, calling, 1, 1};
    co_await test::until(executor, [&] { return answering.running == 1; });
    const support::foreign_task draining = begin(answering, done);
    CHECK_FALSE(done);
    CHECK(answering.stopped == 0);
    answering.gate(1).set();
    co_await test::until(executor, [&] { return done && all.have_ended(); });
    draining.rethrow();
    CHECK((**all.all[0]).take() == 1);
  }(s, c, drain, has_drained));
}

TEST_CASE("what still runs when a server has drained for too long is stopped", "[rpc][device]") {
  manual_clock clock;
  rpc_server s{{.drain_timeout = 50ms}, test::by_hand(clock)};
  rpc::client c = s.make_client();
  s.rt.run([](rpc_server& answering, rpc::client& calling, manual_clock& time) -> task<> {
    cordma::executor& executor = answering.rt.executor();
    calls all{answering, calling, 1, 1};
    co_await test::until(executor, [&] { return answering.running == 1; });
    started draining{executor, answering.server.drain()};
    time.advance(50ms);
    co_await test::until(executor, [&] { return draining.has_ended() && all.have_ended(); });
    CHECK(answering.stopped == 1);
    CHECK((**all.all[0]).take_result().has_failure());
  }(s, c, clock));
}

TEST_CASE("stopping serve stops its calls, and waits for them", "[rpc][device]") {
  rpc_server s;
  s.stubborn = true;
  rpc::client c = s.make_client();
  s.rt.run([](rpc_server& answering, rpc::client& calling) -> task<> {
    cordma::executor& executor = answering.rt.executor();
    calls all{answering, calling, 1, 1};
    co_await test::until(executor, [&] { return answering.running == 1; });
    answering.work.request_stop();
    co_await test::due_timers_fired();
    CHECK(answering.work.running() == 1);
    answering.open(1);
    co_await answering.work.join();
    CHECK(answering.running == 0);
  }(s, c));
}

TEST_CASE("a server serves all who come to a listener, and counts those that are lost",
          "[rpc][device]") {
  rpc_server s;
  s.rt.run([](rpc_server& answering) -> task<> {
    runtime& rt = answering.rt;
    cordma::executor& executor = rt.executor();
    scope serving{executor};
    serving.spawn(answering.server.serve(answering.acceptor));
    std::vector<rpc::client> clients;
    for (std::uint32_t n = 0; n < 4; ++n) {
      clients.emplace_back(co_await rt.connect(answering.acceptor.local_endpoint()));
      answering.gate(n).set();
      const std::uint32_t answer = co_await clients.back().call<wait_for>(n);
      CHECK(answer == n);
    }
    CHECK(answering.server.counters().connections == 4);
    co_await clients[0].close();
    co_await test::until(executor, [&] { return answering.server.counters().connections == 3; });
    CHECK(answering.server.counters().connections_lost == 0);
    clients[1].connection()->qp().abort({.code = errc::disconnected, .call = "test"});
    co_await test::until(executor, [&] { return answering.server.counters().connections == 2; });
    CHECK(answering.server.counters().connections_lost == 1);
    clients.clear();
    co_await answering.server.drain();
    co_await serving.join();
    CHECK(answering.server.counters().connections == 0);
  }(s));
}

TEST_CASE("two methods of the same name are refused, and so are options out of range", "[rpc]") {
  struct one : rpc::method<"test.twin", std::string> {};
  struct two : rpc::method<"test.twin"> {};
  rpc::server server;
  server.handle<one>([](std::string) -> task<rpc::nothing> { co_return {}; });
  std::string why;
  try {
    server.handle<two>([](rpc::nothing) -> task<rpc::nothing> { co_return {}; });
  } catch (const error& e) {
    why = e.what();
  }
  CHECK(why.find("test.twin and test.twin have the same id") != std::string::npos);
  CHECK_THROWS_AS(rpc::server{{.calls_per_connection_max = 0}}, error);
  CHECK_THROWS_AS(rpc::server{{.calls_max = 0}}, error);
  CHECK_THROWS_AS(rpc::server{{.drain_timeout = -1ms}}, error);
}
