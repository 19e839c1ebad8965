#include <cordma/rpc/server.hpp>

#include <support/foreign_task.hpp>
#include <support/manual_executor.hpp>
#include <support/outcome.hpp>
#include <support/rpc_pair.hpp>

#include <cordma/coro/with_timeout.hpp>

#include <catch2/catch.hpp>

using namespace cordma;
using namespace std::chrono_literals;
using support::started;
using test::code_of;
using test::echo;
using test::rpc_server;
using test::wait_for;

namespace {

/// Takes more turns than a server that closes at once needs for that.
task<> some_iterations(rpc_server& s) {
  unsigned iterations = 0;
  co_await test::until(s.rt.executor(), [&] { return ++iterations > 200; });
}

}  // namespace

TEST_CASE("a client that comes to a server that has drained is refused, and goes elsewhere",
          "[rpc][device]") {
  rpc_server s;
  started serving{s.rt.executor(), s.server.serve(s.acceptor)};
  const endpoint where = s.acceptor.local_endpoint();
  rpc::client served{s.rt.run(s.rt.connect(where))};
  s.rt.run(test::check_echo(served, {}));
  s.rt.run(s.server.drain());
  s.rt.run(test::until(s.rt.executor(), [&] { return serving.has_ended(); }));
  CHECK_NOTHROW((*serving).take());
  CHECK(code_of(s.rt.run(as_result(s.rt.connect(where)))) == std::errc::connection_refused);
}

TEST_CASE("a call on a connection that a drained server is given is told so", "[rpc][device]") {
  rpc_server s;
  s.rt.run(s.server.drain());
  rpc::client late = s.make_client();
  s.rt.run(some_iterations(s));
  CHECK(s.rt.run(test::why_it_fails<wait_for>(late, 1)).code == errc::shutting_down);
  s.rt.run(test::until(s.rt.executor(), [&] { return s.server.counters().connections == 0; }));
  CHECK(s.begun == 0);
  CHECK(s.lost == 0);
}

TEST_CASE("those that were accepted when the server drained are told so", "[rpc][device]") {
  rpc_server s;
  const endpoint where = s.acceptor.local_endpoint();
  rpc::client waits{s.rt.run(s.rt.connect(where))};
  started serving{s.rt.executor(), s.server.serve(s.acceptor)};
  s.rt.run(s.server.drain());
  CHECK(s.rt.run(test::why_it_fails<wait_for>(waits, 1)).code == errc::shutting_down);
  s.rt.run(test::until(s.rt.executor(), [&] { return serving.has_ended(); }));
}

TEST_CASE("a drained server does not wait for ever for a client that calls nothing",
          "[rpc][device]") {
  manual_clock clock;
  rpc_server s{{.drain_timeout = 50ms}, test::by_hand(clock)};
  s.rt.run(s.server.drain());
  rpc::client idle = s.make_client();
  s.rt.run([](rpc_server& answering, manual_clock& time) -> task<> {
    cordma::executor& executor = answering.rt.executor();
    co_await test::until(executor, [&] { return answering.server.counters().connections == 1; });
    co_await some_iterations(answering);
    CHECK(answering.server.counters().connections == 1);
    time.advance(50ms);
    co_await test::until(executor, [&] { return answering.server.counters().connections == 0; });
  }(s, clock));
}

TEST_CASE("a call that no connection could be made for says why", "[rpc][device]") {
  rpc_server s;
  s.acceptor.close();
  rpc::client c{s.rt.executor(), [&s] { return s.rt.connect(s.acceptor.local_endpoint()); }};
  const failure why = s.rt.run(test::why_it_fails<wait_for>(c, 1, {.timeout = 20ms}));
  CHECK(why.code == errc::timed_out);
  CHECK_THAT(why.to_string(), Catch::Contains("not sent before the deadline") &&
                                  Catch::Contains("Connection refused"));
}

TEST_CASE("a client without a connector is refused when it is made", "[rpc]") {
  cordma::executor executor;
  CHECK_THROWS_WITH((rpc::client{executor, rpc::client::connector{}}),
                    Catch::Contains("the connector is empty"));
}

namespace {

struct give_up : rpc::method<"test.give_up"> {};

}  // namespace

TEST_CASE("a handler that throws cancelled by itself has failed", "[rpc][device][P6]") {
  rpc_server s;
  s.server.handle<give_up>([](rpc::nothing) -> task<rpc::nothing> {
    throw cancelled{};
    co_return {};
  });
  rpc::client c = s.make_client();
  const failure why = s.rt.run(test::why_it_fails<give_up>(c, {}));
  CHECK(why.code == errc::handler_failed);
  CHECK_THAT(why.to_string(), Catch::Contains("threw cancelled"));
  CHECK(s.server.counters().failed == 1);
}

TEST_CASE("a call's deadline that no clock can count is for ever", "[rpc][device]") {
  rpc_server s;
  rpc::client c = s.make_client();
  static constexpr rpc::call_options for_ever{.timeout = std::chrono::milliseconds::max()};
  s.rt.run([](rpc_server& answering, rpc::client& calling) -> task<> {
    cordma::executor& executor = answering.rt.executor();
    started call{executor, calling.call<wait_for>(1, for_ever)};
    co_await test::until(executor, [&] { return answering.running == 1; });
    answering.gate(1).set();
    co_await test::until(executor, [&] { return call.has_ended(); });
    CHECK((*call).take() == 1);
  }(s, c));
}

TEST_CASE("a coroutine that names no scheduler calls, with time-outs", "[rpc][device]") {
  rpc_server s;
  rpc::client c = s.make_client();
  const auto foreign = [](rpc::client& calling) -> support::foreign_task {
    const auto late = co_await as_result(with_timeout(calling.call<wait_for>(1), 1ms));
    CHECK(code_of(late) == errc::timed_out);
  };
  const support::foreign_task f = foreign(c);
  s.rt.run(test::until(s.rt.executor(), [&] { return f.done(); }));
  f.rethrow();
}
