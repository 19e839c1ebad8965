#include <cordma/rpc/client.hpp>

#include "request/queue_pair.hpp"
#include "rpc/client_core.hpp"

#include <support/allocations.hpp>
#include <support/manual_executor.hpp>
#include <support/outcome.hpp>
#include <support/rpc_pair.hpp>

#include <catch2/catch.hpp>

#include <cordma/coro/when_all.hpp>
#include <cordma/coro/with_timeout.hpp>

#include <cctype>
#include <string>
#include <vector>

using namespace cordma;
using namespace std::chrono_literals;
using test::check_echo;
using test::code_of;

namespace {

using std::size_t;
using support::started;
using test::echo;
using test::pattern;
using test::reconnecting;
using test::rpc_server;
using test::view;
using test::wait_again;
using test::wait_for;
using test::why_it_fails;

struct point {
  std::uint64_t x, y;
  friend bool operator==(point, point) = default;
};
struct mirror : rpc::method<"test.mirror", point, point> {};
struct shout : rpc::method<"test.shout", std::string, std::string> {};
struct ping : rpc::method<"test.ping"> {};
struct nowhere : rpc::method<"test.nowhere"> {};
struct shout_a_number : rpc::method<"test.shout", std::uint64_t, std::string> {};
struct mirror_text : rpc::method<"test.mirror", std::string, point> {};

task<std::string> shouted(std::string text) {
  for (char& c : text) c = char(std::toupper(c));
  co_return text;
}
task<point> mirrored(point p) { co_return point{p.y, p.x}; }

}  // namespace

TEST_CASE("a call gives what its handler makes of the request", "[rpc][device][P1]") {
  rpc_server s;
  s.server.handle<mirror>(mirrored);
  s.server.handle<shout>(shouted);
  s.server.handle<ping>([](rpc::nothing) -> task<rpc::nothing> { co_return {}; });
  rpc::client c = s.make_client();
  s.rt.run([](rpc::client& calling) -> task<> {
    const point p = co_await calling.call<mirror>({1, 2});
    CHECK(p == point{2, 1});
    const std::string loud = co_await calling.call<shout>("hello");
    CHECK(loud == "HELLO");
    co_await calling.call<ping>();
  }(c));
  CHECK(c.counters().answered == 3);
  CHECK(s.server.counters().replied == 3);
  CHECK(s.server.counters().running == 0);
}

TEST_CASE("requests and replies of any size come whole", "[rpc][device][P1]") {
  rpc_server s{{.stream = {.buffer_bytes = 256}}};
  rpc::client c = s.make_client({.stream = {.buffer_bytes = 512}});
  for (const size_t size : {size_t{0}, size_t{1}, size_t{32}, size_t{33}, size_t{231}, size_t{232},
                            size_t{233}, size_t{488}, size_t{489}, size_t{4096}, size_t{1} << 20}) {
    INFO(size);
    s.rt.run(check_echo(c, pattern(size)));
  }
  CHECK(c.stream().large_sent > 0);
}

TEST_CASE("calls run side by side, and are answered in any order", "[rpc][device][P1]") {
  rpc_server s;
  rpc::client c = s.make_client();
  s.rt.run([](rpc_server& answering, rpc::client& calling) -> task<> {
    std::vector<std::uint32_t> order;
    scope calls{answering.rt.executor()};
    const auto call = [&](std::uint32_t n) -> task<> {
      const std::uint32_t answer = co_await calling.call<wait_for>(n);
      order.push_back(answer);
    };
    for (const std::uint32_t n : {1u, 2u, 3u}) calls.spawn(call(n));
    cordma::executor& executor = answering.rt.executor();
    co_await test::until(executor, [&] { return answering.running == 3; });
    for (const std::uint32_t n : {3u, 1u, 2u}) {
      answering.gate(n).set();
      co_await test::until(executor, [&] { return !order.empty() && order.back() == n; });
    }
    co_await calls.join();
    CHECK(order == std::vector<std::uint32_t>{3, 1, 2});
  }(s, c));
}

TEST_CASE("small calls overtake one whose request is still read", "[rpc][device][P1]") {
  rpc_server s;
  rpc::client c = s.make_client();
  s.rt.run([](rpc::client& calling) -> task<> {
    const auto large = pattern(8 << 20);
    bool is_first = false;
    const auto call_large = [&]() -> task<> {
      co_await check_echo(calling, large);
      CHECK(is_first);
    };
    const auto call_small = [&]() -> task<> {
      co_await check_echo(calling, view{large}.first(10));
      is_first = true;
    };
    co_await when_all(call_large(), call_small());
  }(c));
}

TEST_CASE("a deadline ends a call and frees its slot; the late reply is ignored",
          "[rpc][device][P2]") {
  manual_clock clock;
  rpc_server s{{}, test::by_hand(clock)};
  s.stubborn = true;
  rpc::client c = s.make_client({.calls_max = 1});
  s.rt.run([](rpc_server& answering, rpc::client& calling, manual_clock& time) -> task<> {
    started late{answering.rt.executor(), calling.call<wait_for>(1, {.timeout = 50ms})};
    cordma::executor& executor = answering.rt.executor();
    co_await test::until(executor, [&] { return answering.running == 1; });
    CHECK(!late.has_ended());
    time.advance(50ms);
    co_await test::until(executor, [&] { return late.has_ended(); });
    CHECK(code_of((*late).take_result()) == errc::timed_out);
    CHECK(calling.counters().timed_out == 1);
    // The only slot is for the next call, while the handler still runs.
    co_await check_echo(calling, pattern(10));
    CHECK(answering.running == 1);
    answering.open(1);
    co_await test::until(executor, [&] { return calling.counters().late == 1; });
    co_await check_echo(calling, pattern(10));
  }(s, c, clock));
  CHECK(s.server.counters().running == 0);
}

TEST_CASE("the deadline of a call that was answered ends nothing", "[rpc][device][P2]") {
  manual_clock clock;
  rpc_server s{{}, test::by_hand(clock)};
  rpc::client c = s.make_client({.calls_max = 1});
  s.rt.run([](rpc_server& answering, rpc::client& calling, manual_clock& time) -> task<> {
    cordma::executor& executor = answering.rt.executor();
    event never{executor};
    const auto pass = [&](duration length) -> task<> {
      started passing{executor, with_timeout(never.wait(), length, &executor)};
      time.advance(length);
      co_await test::until(executor, [&] { return passing.has_ended(); });
    };
    const auto bytes = pattern(10);
    static_cast<void>(co_await calling.call<echo>(bytes, {.timeout = 50ms}));
    co_await pass(50ms);
    static_cast<void>(co_await calling.call<echo>(bytes, {.timeout = 50ms}));
    co_await pass(40ms);
    started next{executor, calling.call<wait_for>(1, {.timeout = 50ms})};
    co_await test::until(executor, [&] { return answering.running == 1; });
    co_await pass(40ms);
    CHECK(!next.has_ended());
    CHECK(calling.counters().timed_out == 0);
    co_await pass(10ms);
    CHECK(next.has_ended());
    CHECK(code_of((*next).take_result()) == errc::timed_out);
  }(s, c, clock));
}

TEST_CASE("a call that waits for its turn ends by its deadline too, and is never sent",
          "[rpc][device][P2]") {
  manual_clock clock;
  rpc_server s{{}, test::by_hand(clock)};
  rpc::client c = s.make_client({.calls_max = 1});
  s.rt.run([](rpc_server& answering, rpc::client& calling, manual_clock& time) -> task<> {
    cordma::executor& executor = answering.rt.executor();
    started first{executor, calling.call<wait_for>(1)};
    started second{executor, calling.call<wait_for>(2, {.timeout = 50ms})};
    co_await test::until(executor, [&] { return answering.running == 1; });
    time.advance(50ms);
    co_await test::until(executor, [&] { return second.has_ended(); });
    const auto outcome = (*second).take_result();
    CHECK(code_of(outcome) == errc::timed_out);
    CHECK(outcome.failure().detail.view() == "not sent before the deadline");
    answering.gate(1).set();
    co_await test::until(executor, [&] { return first.has_ended(); });
    CHECK((*first).take() == 1);
  }(s, c, clock));
  CHECK(s.begun == 1);
}

TEST_CASE("a lost connection ends every call at once", "[rpc][device][P3]") {
  rpc_server s;
  rpc::client c = s.make_client({.calls_max = 2});
  s.rt.run([](rpc_server& answering, rpc::client& calling) -> task<> {
    cordma::executor& executor = answering.rt.executor();
    started first{executor, calling.call<wait_for>(1)};
    started second{executor, calling.call<wait_for>(2)};
    started waiting{executor, calling.call<wait_for>(3)};
    co_await test::until(executor, [&] { return answering.running == 2; });
    calling.connection()->qp().abort({.code = errc::disconnected, .call = "test"});
    co_await test::until(
        executor, [&] { return first.has_ended() && second.has_ended() && waiting.has_ended(); });
    const auto outcome = (*first).take_result();
    CHECK(code_of(outcome) == errc::disconnected);
    CHECK(outcome.failure().call == std::string_view{"test.wait_for"});
    CHECK(outcome.failure().detail.view().starts_with("test: the connection to "));
    CHECK(code_of((*second).take_result()) == errc::disconnected);
    CHECK(code_of((*waiting).take_result()) == errc::disconnected);
    const failure later = co_await why_it_fails<wait_for>(calling, 4);
    CHECK(later.code == errc::disconnected);
    // The handlers of the lost calls are told.
    co_await test::until(executor, [&] { return answering.server.counters().connections == 0; });
    CHECK(answering.stopped == 2);
  }(s, c));
  CHECK(c.counters().lost == 4);
}

TEST_CASE("what is too large for either side is an error, and the connection lives",
          "[rpc][device][P4]") {
  rpc_server s{{.stream = {.message_bytes_max = 8192}}};
  rpc::client c = s.make_client({.stream = {.message_bytes_max = 4096}});
  s.rt.run([](rpc::client& calling) -> task<> {
    failure f = co_await why_it_fails<echo>(calling, pattern(8192 - 23));
    CHECK(f.code == errc::wrong_length);
    CHECK(f.to_string() ==
          "test.echo: wrong length: 8193 bytes, the peer takes messages of up to 8192");
    f = co_await why_it_fails<echo>(calling, pattern(4096 - 23));
    CHECK(f.code == errc::wrong_length);
    CHECK(f.detail.view().ends_with("4097 bytes, the peer takes messages of up to 4096"));
    co_await check_echo(calling, pattern(4096 - 24));
  }(c));
  CHECK(s.server.counters().too_large == 1);
  CHECK(s.server.counters().running == 0);
}

TEST_CASE("more calls than the server has buffers for wait, and none finds it not ready",
          "[rpc][device][P5]") {
  rpc_server s{{.stream = {.depth = 8}}};
  rpc::client c = s.make_client();
  s.rt.run([](rpc_server& answering, rpc::client& calling) -> task<> {
    scope calls{answering.rt.executor()};
    const auto call = [&](std::uint32_t n) -> task<> {
      const std::uint32_t answer = co_await calling.call<wait_for>(n);
      CHECK(answer == n);
    };
    for (std::uint32_t n = 0; n < 200; ++n) calls.spawn(call(n));
    co_await test::until(answering.rt.executor(), [&] { return answering.running == 4; });
    CHECK(calling.stream().credit_waits > 0);
    for (std::uint32_t n = 0; n < 200; ++n) answering.gate(n).set();
    co_await calls.join();
  }(s, c));
  CHECK(s.most == 4);
  CHECK(c.counters().answered == 200);
}

TEST_CASE("a handler's error reaches the caller with its text", "[rpc][device][P6]") {
  struct throws_ours : rpc::method<"test.ours"> {};
  struct throws_std : rpc::method<"test.std"> {};
  struct throws_int : rpc::method<"test.int"> {};
  struct throws_long : rpc::method<"test.long"> {};
  struct throws_early : rpc::method<"test.early"> {};
  rpc_server s;
  using rpc::nothing;
  s.server.handle<throws_ours>([](nothing) -> task<nothing> {
    throw error{{.code = errc::limit_exceeded, .call = "put", .detail = "no row 7"}};
    co_return {};
  });
  s.server.handle<throws_std>([](nothing) -> task<nothing> {
    co_await sleep_for(0ms);
    throw std::runtime_error{"broken disk"};
  });
  s.server.handle<throws_int>([](nothing) -> task<nothing> {
    throw 7;
    co_return {};
  });
  s.server.handle<throws_long>([](nothing) -> task<nothing> {
    throw std::runtime_error{std::string(1000, 'x')};
    co_return {};
  });
  s.server.handle<throws_early>(
      [](nothing) -> task<nothing> { throw std::runtime_error{"no coroutine"}; });
  rpc::client c = s.make_client();
  s.rt.run([](rpc::client& calling) -> task<> {
    failure f = co_await why_it_fails<throws_ours>(calling, {});
    CHECK(f.code == errc::handler_failed);
    CHECK(f.call == std::string_view{"test.ours"});
    CHECK(f.detail.view().find("no row 7") != std::string_view::npos);
    f = co_await why_it_fails<throws_std>(calling, {});
    CHECK(f.code == errc::handler_failed);
    CHECK(f.detail.view() == "broken disk");
    f = co_await why_it_fails<throws_int>(calling, {});
    CHECK(f.detail.view() == "it threw what is no std::exception");
    f = co_await why_it_fails<throws_long>(calling, {});
    CHECK(f.detail.view() == std::string(237, 'x') + "...");
    f = co_await why_it_fails<throws_early>(calling, {});
    CHECK(f.detail.view() == "no coroutine");
    co_await check_echo(calling, pattern(10));
  }(c));
  CHECK(s.server.counters().failed == 5);
  CHECK(c.counters().refused == 5);
}

TEST_CASE("a method that the server does not have is an error, and the connection lives",
          "[rpc][device]") {
  rpc_server s;
  rpc::client c = s.make_client();
  s.rt.run([](rpc::client& calling) -> task<> {
    const failure f = co_await why_it_fails<nowhere>(calling, {});
    CHECK(f.code == errc::unknown_method);
    CHECK(f.detail.view().starts_with("the server has no method 0x"));
    co_await check_echo(calling, pattern(10));
  }(c));
  CHECK(s.server.counters().refused == 1);
}

namespace {
/// Cannot be encoded.
struct unencodable {};
}  // namespace

template <>
struct rpc::codec<unencodable> {
  static std::size_t size(const unencodable&) { return 1; }
  static void encode(const unencodable&, std::span<std::byte>) { throw 7; }
  static unencodable decode(std::span<const std::byte>) { return {}; }
};

TEST_CASE("what cannot be encoded is that call's error, on either side", "[rpc][device][P6]") {
  struct takes : rpc::method<"test.takes", unencodable> {};
  struct gives : rpc::method<"test.gives", rpc::nothing, unencodable> {};
  rpc_server s;
  s.server.handle<gives>([](rpc::nothing) -> task<unencodable> { co_return {}; });
  rpc::client c = s.make_client();
  s.rt.run([](rpc::client& calling) -> task<> {
    failure f = co_await why_it_fails<takes>(calling, {});
    CHECK(f.code == errc::bad_message);
    f = co_await why_it_fails<gives>(calling, {});
    CHECK(f.code == errc::handler_failed);
    CHECK(f.detail.view() == "it threw what is no std::exception");
    co_await check_echo(calling, pattern(10));
  }(c));
}

TEST_CASE("a request or reply that is not what its type says is an error", "[rpc][device]") {
  rpc_server s;
  s.server.handle<mirror>(mirrored);
  s.server.handle<shout>(shouted);
  struct mirror_long : rpc::method<"test.shout", std::string, point> {};
  rpc::client c = s.make_client();
  s.rt.run([](rpc::client& calling) -> task<> {
    failure f = co_await why_it_fails<mirror_text>(calling, "short");
    CHECK(f.code == errc::bad_message);
    CHECK(f.detail.view().find("5 bytes, its type takes 16") != std::string_view::npos);
    f = co_await why_it_fails<mirror_long>(calling, "short");
    CHECK(f.code == errc::bad_message);
    co_await check_echo(calling, pattern(10));
  }(c));
}

TEST_CASE("a stopped call tells the server, whose handler sees a stop", "[rpc][device][P7]") {
  rpc_server s;
  rpc::client c = s.make_client();
  s.rt.run([](rpc_server& answering, rpc::client& calling) -> task<> {
    cordma::executor& executor = answering.rt.executor();
    started call{executor, calling.call<wait_for>(1)};
    co_await test::until(executor, [&] { return answering.running == 1; });
    call.request_stop();
    co_await test::until(executor, [&] { return call.has_ended(); });
    CHECK((*call).take_result().is_cancelled());
    co_await test::until(executor, [&] { return answering.stopped == 1; });
    // A call whose coroutine is destroyed stops its handler, too.
    std::optional<started<rpc::detail::call_op<wait_for>>> dropped;
    dropped.emplace(executor, calling.call<wait_for>(2));
    co_await test::until(executor, [&] { return answering.running == 1; });
    dropped.reset();
    co_await test::until(executor, [&] { return answering.stopped == 2; });
    co_await test::until(executor, [&] { return calling.counters().late == 2; });
  }(s, c));
  CHECK(c.counters().stopped == 2);
  CHECK(s.server.counters().stopped == 2);
}

TEST_CASE("a call that was stopped before it was sent is never sent", "[rpc][device][P7]") {
  rpc_server s;
  rpc::client c = s.make_client({.calls_max = 1});
  s.rt.run([](rpc_server& answering, rpc::client& calling) -> task<> {
    cordma::executor& executor = answering.rt.executor();
    started first{executor, calling.call<wait_for>(1)};
    started second{executor, calling.call<wait_for>(2)};
    second.request_stop();
    co_await test::until(executor, [&] { return second.has_ended(); });
    CHECK((*second).take_result().is_cancelled());
    answering.gate(1).set();
    co_await test::until(executor, [&] { return first.has_ended(); });
    co_await check_echo(calling, pattern(10));
  }(s, c));
  CHECK(s.begun == 1);
}

TEST_CASE("dropping a client ends its calls", "[rpc][device]") {
  rpc_server s;
  rpc::client c = s.make_client({.calls_max = 1});
  s.rt.run([](rpc_server& answering, rpc::client& calling) -> task<> {
    cordma::executor& executor = answering.rt.executor();
    started first{executor, calling.call<wait_for>(1)};
    started second{executor, calling.call<wait_for>(2)};
    co_await test::until(executor, [&] { return answering.running == 1; });
    calling = {};
    co_await test::until(executor, [&] { return first.has_ended() && second.has_ended(); });
    CHECK(code_of((*first).take_result()) == errc::closed);
    CHECK(code_of((*second).take_result()) == errc::closed);
    co_await test::until(executor, [&] { return answering.stopped == 1; });
  }(s, c));
}

TEST_CASE("closing a client ends its calls, and is no loss to the server", "[rpc][device]") {
  rpc_server s;
  rpc::client c = s.make_client();
  s.rt.run([](rpc_server& answering, rpc::client& calling) -> task<> {
    cordma::executor& executor = answering.rt.executor();
    started call{executor, calling.call<wait_for>(1)};
    co_await test::until(executor, [&] { return answering.running == 1; });
    co_await calling.close();
    CHECK(code_of((*call).take_result()) == errc::closed);
    co_await answering.work.join();
    const failure later = co_await why_it_fails<wait_for>(calling, 2);
    CHECK(later.code == errc::closed);
  }(s, c));
}

TEST_CASE("a call allocates nothing once warm", "[rpc][device]") {
  rpc_server s;
  s.server.handle<mirror>(mirrored);
  rpc::client c = s.make_client();
  const auto calls = [](rpc::client& calling, unsigned count) -> task<> {
    const auto some = pattern(1000);
    for (unsigned i = 0; i < count; ++i) {
      const point p = co_await calling.call<mirror>({i, 2});
      CHECK(p.y == i);
      const auto back = co_await calling.call<echo>(view{some}.first(i % 1000));
      CHECK(back->size() == i % 1000);
    }
  };
  s.rt.run(calls(c, 200));
  const std::uint64_t before = support::allocation_count();
  s.rt.run(calls(c, 1000));
  CHECK(support::allocation_count() - before <= 2);  // The two tasks' vectors.
}

TEST_CASE("options out of range are refused by name", "[rpc]") {
  const auto why = [](const rpc::client_options& o) -> std::string {
    try {
      check(o);
    } catch (const error& e) {
      return e.what();
    }
    return "";
  };
  CHECK(why({}).empty());
  CHECK(why({.calls_max = 0}).find("calls_max") != std::string::npos);
  CHECK(why({.calls_max = 65'536}).find("65535") != std::string::npos);
  CHECK(why({.call_timeout = 0ns}).find("call_timeout") != std::string::npos);
  CHECK(why({.reconnect = {.delay = 2s, .delay_max = 1s}}).find("delay_max") != std::string::npos);
  CHECK(why({.stream = {.large_ahead = 0}}).find("large_ahead") != std::string::npos);
}

// ---- connections of its own

TEST_CASE("a client with a connector connects when there is a call, and again when it was lost",
          "[rpc][device]") {
  rpc_server s;
  reconnecting r{s};
  CHECK(r.attempts == 0);
  s.rt.run(check_echo(r.calling, pattern(10)));
  s.rt.run(check_echo(r.calling, pattern(10)));
  CHECK(r.attempts == 1);
  r.lose();
  s.rt.run(check_echo(r.calling, pattern(10)));
  CHECK(r.attempts == 2);
  CHECK(r.calling.counters().connects == 2);
}

TEST_CASE("only a call that may run twice is repeated", "[rpc][device]") {
  rpc_server s;
  reconnecting r{s, {.calls_max = 2}};
  s.rt.run([](rpc_server& answering, reconnecting& client) -> task<> {
    cordma::executor& executor = answering.rt.executor();
    co_await check_echo(client.calling, pattern(10));
    started once{executor, client.calling.call<wait_for>(1)};
    started twice{executor, client.calling.call<wait_again>(2)};
    started unsent{executor, client.calling.call<wait_for>(3)};
    co_await test::until(executor, [&] { return answering.running == 2; });
    client.lose();
    co_await test::until(executor,
                         [&] { return answering.stopped == 2 && answering.running == 2; });
    CHECK(code_of((*once).take_result()) == errc::disconnected);
    answering.gate(2).set();
    answering.gate(3).set();
    co_await test::until(executor, [&] { return twice.has_ended() && unsent.has_ended(); });
    CHECK((*twice).take() == 2);
    CHECK((*unsent).take() == 3);
  }(s, r));
  CHECK(r.calling.counters().repeated == 1);
  CHECK(r.calling.counters().lost == 1);
  CHECK(s.begun == 4);
}

TEST_CASE("a lost call that meets its deadline does not say that it was never sent",
          "[rpc][device]") {
  manual_clock clock;
  rpc_server s{{}, test::by_hand(clock)};
  reconnecting r{s};
  s.rt.run([](rpc_server& answering, reconnecting& client, manual_clock& time) -> task<> {
    cordma::executor& executor = answering.rt.executor();
    started call{executor, client.calling.call<wait_again>(1, {.timeout = 50ms})};
    co_await test::until(executor, [&] { return answering.running == 1; });
    client.is_unreachable = true;
    client.lose();
    time.advance(50ms);
    co_await test::until(executor, [&] { return call.has_ended(); });
    const auto outcome = (*call).take_result();
    CHECK(code_of(outcome) == errc::timed_out);
    CHECK(outcome.failure().detail.view() == "lost, and not sent again before the deadline");
  }(s, r, clock));
}

TEST_CASE("a client tries again after longer and longer, and gives up after so many attempts",
          "[rpc][device]") {
  manual_clock clock;
  rpc_server s{{}, test::by_hand(clock)};
  reconnecting r{s, {.reconnect = {.delay = 100ms, .delay_max = 400ms, .attempts_max = 5}}};
  r.is_unreachable = true;
  s.rt.run([](rpc_server& answering, reconnecting& client, manual_clock& time) -> task<> {
    cordma::executor& executor = answering.rt.executor();
    started call{executor, client.calling.call<wait_for>(1)};
    co_await test::until(executor, [&] { return client.attempts == 1; });
    unsigned attempts = 1;
    for (const auto delay : {100ms, 200ms, 400ms, 400ms}) {
      time.advance(delay / 2 - 1ms);
      co_await test::due_timers_fired();
      co_await test::due_timers_fired();
      CHECK(client.attempts == attempts);
      time.advance(delay / 2 + 1ms);
      co_await test::until(executor, [&] { return client.attempts == attempts + 1; });
      ++attempts;
    }
    co_await test::until(executor, [&] { return call.has_ended(); });
    CHECK(code_of((*call).take_result()) == std::errc::connection_refused);
    client.is_unreachable = false;
    co_await check_echo(client.calling, pattern(10));
  }(s, r, clock));
}
