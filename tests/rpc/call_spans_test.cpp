// The spans of calls at a client's and a server's tracer.
#include "rpc/call_spans.hpp"

#include "base/random.hpp"

#include <support/allocations.hpp>
#include <support/manual_executor.hpp>
#include <support/outcome.hpp>
#include <support/rpc_pair.hpp>

#include <catch2/catch.hpp>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

using namespace cordma;
using namespace std::chrono_literals;
using call_span = rpc::tracer::span;
using rpc::trace_context;
using support::started;
using test::echo;
using test::pattern;
using test::reconnecting;
using test::rpc_server;
using test::wait_again;
using test::wait_for;

namespace {

struct kept_span {
  call_span span;
  std::string method, peer, text;
};

/// A tracer that keeps the spans.
struct span_log final : rpc::tracer {
  void begin(call_span& span) noexcept override {
    ++begun;
    if (change) change(span);
  }
  void end(const call_span& span) noexcept override {
    ended.push_back({span, std::string{span.method},
                     span.peer != nullptr ? span.peer->to_string() : "", std::string{span.text}});
  }
  [[nodiscard]] const kept_span& only() const {
    REQUIRE(ended.size() == 1);
    return ended.front();
  }
  unsigned begun = 0;
  std::function<void(call_span&)> change;
  std::vector<kept_span> ended;
};

/// A client and a server with a tracer each.
struct traced_pair {
  explicit traced_pair(runtime_options of_runtime = {}, rpc::server_options options = {})
      : s{with(options, at_server), std::move(of_runtime)},
        c{s.make_client({.tracer = &at_client})} {}
  static rpc::server_options with(rpc::server_options options, span_log& log) {
    options.tracer = &log;
    return options;
  }
  span_log at_client, at_server;
  rpc_server s;
  rpc::client c;
};

/// Gives the context that the handler has, as text.
struct context_at_handler : rpc::method<"test.context", std::vector<std::byte>, std::string> {};
/// Gives the context of a handler that this handler calls.
struct context_behind : rpc::method<"test.context_behind", rpc::nothing, std::string> {};
struct fails : rpc::method<"test.fails"> {};
struct unknown_here : rpc::method<"test.unknown_here"> {};
struct gives_much : rpc::method<"test.gives_much", std::uint32_t, std::vector<std::byte>> {};

void handle_context(rpc_server& s) {
  s.server.handle<context_at_handler>(
      [](std::vector<std::byte>, rpc::server_call& call) -> task<std::string> {
        co_return call.trace().to_traceparent();
      });
}

/// A context that comes with an HTTP request, say.
const trace_context given =
    trace_context::from_traceparent("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");

void check_is_below(const kept_span& child, const kept_span& parent) {
  CHECK(child.span.context.trace_id == parent.span.context.trace_id);
  CHECK(child.span.parent_span_id == parent.span.context.span_id);
  CHECK(child.span.context.span_id != parent.span.context.span_id);
  CHECK(child.span.start >= parent.span.start);
  CHECK(child.span.end <= parent.span.end);
}

}  // namespace

TEST_CASE("a call has a span at its client, and below that one at its server", "[rpc][device]") {
  traced_pair p;
  p.s.rt.run(test::check_echo(p.c, pattern(10)));
  const kept_span &calls = p.at_client.only(), &answers = p.at_server.only();
  CHECK(calls.span.kind == rpc::tracer::span_kind::client);
  CHECK(answers.span.kind == rpc::tracer::span_kind::server);
  CHECK(calls.span.parent_span_id == trace_context{}.span_id);
  CHECK(calls.span.context.is_sampled());
  check_is_below(answers, calls);
  for (const kept_span* one : {&calls, &answers}) {
    CHECK(one->method == echo::name);
    CHECK_FALSE(one->span.outcome);
    CHECK(one->text.empty());
    CHECK(one->span.repeats == 0);
    CHECK(one->span.start <= one->span.end);
  }
  CHECK(calls.peer == p.c.connection()->peer().to_string());
  CHECK(answers.peer.starts_with("127.0.0.1:"));
  CHECK(answers.peer != calls.peer);
}

TEST_CASE("what a handler calls belongs to the handler's span", "[rpc][device]") {
  traced_pair p;
  handle_context(p.s);
  p.s.server.handle<context_behind>([&](rpc::nothing, rpc::server_call& call) -> task<std::string> {
    co_return co_await p.c.call<context_at_handler>({}, {.trace = call.trace()});
  });
  const std::string innermost =
      p.s.rt.run(p.c.call<context_behind>({}, {.timeout = 10s, .trace = given}));
  REQUIRE(p.at_client.ended.size() == 2);
  REQUIRE(p.at_server.ended.size() == 2);
  // The inner spans end first.
  CHECK(p.at_client.ended[1].span.parent_span_id == given.span_id);
  CHECK(p.at_client.ended[1].span.context.trace_id == given.trace_id);
  check_is_below(p.at_server.ended[1], p.at_client.ended[1]);
  check_is_below(p.at_client.ended[0], p.at_server.ended[1]);
  check_is_below(p.at_server.ended[0], p.at_client.ended[0]);
  CHECK(innermost == p.at_server.ended[0].span.context.to_traceparent());
}

TEST_CASE("without tracers a context goes through as it is, however long the request is",
          "[rpc][device]") {
  rpc_server s{{.stream = {.buffer_bytes = 64}}};  // Less than the longest head of a request.
  handle_context(s);
  rpc::client c = s.make_client();
  trace_context dark = given;
  dark.flags = 0;
  for (const std::size_t size :
       {std::size_t{0}, std::size_t{8}, std::size_t{9}, std::size_t{5000}, std::size_t{1} << 20}) {
    INFO(size);
    for (const trace_context& one : {given, dark, trace_context{}}) {
      const std::string came = s.rt.run(c.call<context_at_handler>(pattern(size), {.trace = one}));
      CHECK(came == one.to_traceparent());
    }
    CHECK(s.rt.run(c.call<context_at_handler>(pattern(size))).empty());
  }
}

TEST_CASE("a context goes beside memory that a call lends", "[rpc][device]") {
  struct copies : rpc::method<"test.copies", std::string, std::string> {};
  traced_pair p;
  p.s.server.handle<copies>(
      [](std::string said, rpc::server_call& call) -> task<std::string> {  // NOLINT: the type.
        const local_mr read = co_await call.fetch_source(4096);
        const remote_mr sink = call.sink();
        co_await call.connection().write(read.slice(), sink.slice());
        co_return said + call.trace().to_traceparent();
      });
  local_mr from = p.s.rt.memory().allocate_zeroed(4096), to = p.s.rt.memory().allocate_zeroed(4096);
  std::ranges::copy(pattern(4096), from.bytes().begin());
  const std::string came = p.s.rt.run(
      p.c.call<copies>("hello ", {.source = from.slice(), .sink = to.slice(), .trace = given}));
  CHECK(std::ranges::equal(from.bytes(), to.bytes()));
  CHECK(came == "hello " + p.at_server.only().span.context.to_traceparent());
}

TEST_CASE("a trace that is not sampled goes on, and is told to nobody", "[rpc][device]") {
  traced_pair p;
  handle_context(p.s);
  p.at_client.change = [](call_span& span) { span.context.flags = 0; };
  const std::string came = p.s.rt.run(p.c.call<context_at_handler>({}, {.trace = given}));
  CHECK(trace_context::from_traceparent(came).trace_id == given.trace_id);
  CHECK(came.ends_with("-00"));
  CHECK(p.at_client.begun == 1);
  CHECK(p.at_server.begun == 1);
  CHECK(p.at_client.ended.empty());
  CHECK(p.at_server.ended.empty());
}

TEST_CASE("a tracer may keep a context back, and a server's begins a trace then", "[rpc][device]") {
  traced_pair p;
  p.at_client.change = [](call_span& span) { span.context = {}; };
  p.s.rt.run(test::check_echo(p.c, pattern(10)));
  CHECK(p.at_client.ended.empty());
  CHECK(p.at_server.only().span.parent_span_id == trace_context{}.span_id);
  CHECK(p.at_server.only().span.context.is_sampled());
}

TEST_CASE("the data that a tracer gives a span comes back with its end", "[rpc][device]") {
  traced_pair p;
  int some = 0;
  p.at_server.change = [&](call_span& span) { span.data = &some; };
  p.s.rt.run(test::check_echo(p.c, pattern(10)));
  p.s.rt.run(test::check_echo(p.c, pattern(10)));
  REQUIRE(p.at_server.ended.size() == 2);
  for (const kept_span& one : p.at_server.ended) CHECK(one.span.data == &some);
  for (const kept_span& one : p.at_client.ended) CHECK(one.span.data == nullptr);
}

TEST_CASE("each refusal ends the spans of both sides once, and says why", "[rpc][device]") {
  traced_pair p{{}, {.stream = {.message_bytes_max = 4096}}};
  p.s.server.handle<fails>([](rpc::nothing) -> task<rpc::nothing> {
    throw std::runtime_error{"no such luck"};
    co_return {};
  });
  p.s.server.handle<gives_much>(
      [](std::uint32_t size) -> task<std::vector<std::byte>> { co_return pattern(size); });
  rpc::client small =
      p.s.make_client({.stream = {.message_bytes_max = 4096}, .tracer = &p.at_client});

  const auto is_told = [&](std::error_code code, std::string_view text, std::string_view method) {
    REQUIRE(p.at_client.ended.size() == 1);
    REQUIRE(p.at_server.ended.size() == 1);
    for (const span_log* log : {&p.at_client, &p.at_server}) {
      const kept_span& one = log->ended.front();
      CHECK(one.span.outcome == code);
      CHECK(one.text.find(text) != std::string::npos);
    }
    CHECK(p.at_server.ended.front().method == method);
    p.at_client.ended.clear();
    p.at_server.ended.clear();
  };
  CHECK(p.s.rt.run(as_result(p.c.call<fails>())).has_failure());
  is_told(errc::handler_failed, "no such luck", fails::name);
  CHECK(p.s.rt.run(as_result(p.c.call<unknown_here>())).has_failure());
  is_told(errc::unknown_method, "the server has no method", "");
  CHECK(p.s.rt.run(as_result(small.call<gives_much>(8192))).has_failure());
  is_told(errc::wrong_length, "", gives_much::name);
  struct odd_number : rpc::method<"test.wait_for", std::uint64_t, std::uint32_t> {};
  CHECK(p.s.rt.run(as_result(p.c.call<odd_number>(1))).has_failure());
  is_told(errc::bad_message, "8 bytes, its type takes 4", odd_number::name);

  // A call that the client refuses by itself never comes to the server.
  CHECK(p.s.rt.run(as_result(p.c.call<echo>(pattern(8192)))).has_failure());
  CHECK(p.at_client.only().span.outcome == errc::wrong_length);
  CHECK(p.at_server.ended.empty());
  CHECK(p.at_client.begun == 5);
  CHECK(p.at_server.begun == 4);
}

TEST_CASE("spans that a deadline ends take as long, by the executor's clock", "[rpc][device]") {
  manual_clock clock;
  clock.advance(1h);
  traced_pair p{test::by_hand(clock)};
  p.s.rt.run([](traced_pair& pair, manual_clock& time) -> task<> {
    cordma::executor& executor = pair.s.rt.executor();
    started call{executor, pair.c.call<wait_for>(1, {.timeout = 50ms})};
    co_await test::until(executor, [&] { return pair.s.running == 1; });
    CHECK(pair.at_client.ended.empty());
    time.advance(50ms);
    co_await test::until(executor,
                         [&] { return call.has_ended() && pair.s.server.counters().running == 0; });
  }(p, clock));
  for (const span_log* log : {&p.at_client, &p.at_server}) {
    const kept_span& one = log->only();
    CHECK(one.span.outcome == errc::timed_out);
    CHECK(one.span.start == time_point{1h});
    CHECK(one.span.end == time_point{1h + 50ms});
  }
  CHECK(p.at_client.only().text == "the server did not answer before the deadline");
}

TEST_CASE("a call that the program stops or drops ends its spans so", "[rpc][device]") {
  const bool is_dropped = GENERATE(false, true);
  traced_pair p;
  p.s.rt.run([](traced_pair& pair, bool drops) -> task<> {
    cordma::executor& executor = pair.s.rt.executor();
    auto call = std::make_unique<started<decltype(pair.c.call<wait_for>(1))>>(
        executor, pair.c.call<wait_for>(1));
    co_await test::until(executor, [&] { return pair.s.running == 1; });
    if (drops) {
      call.reset();
    } else {
      call->request_stop();
    }
    co_await test::until(executor, [&] { return pair.s.server.counters().running == 0; });
  }(p, is_dropped));
  CHECK(p.at_client.only().span.outcome == std::errc::operation_canceled);
  CHECK(p.at_server.only().span.outcome == errc::timed_out);  // The client would be told so.
}

TEST_CASE("a call that is stopped before it is started has no span", "[rpc][device]") {
  traced_pair p;
  stop_source stopped;
  stopped.request_stop();
  cordma::detail::end_flag told;
  auto call = p.c.call<echo>({});
  CHECK(call.start(told, {&p.s.rt.executor(), stopped}));
  CHECK(p.at_client.begun == 0);
}

TEST_CASE("spans of calls that are lost say why the connection ended", "[rpc][device]") {
  traced_pair p;
  p.s.rt.run([](traced_pair& pair) -> task<> {
    cordma::executor& executor = pair.s.rt.executor();
    started call{executor, pair.c.call<wait_for>(1)};
    co_await test::until(executor, [&] { return pair.s.running == 1; });
    reconnecting::lose(*pair.c.connection());
    co_await test::until(executor,
                         [&] { return call.has_ended() && pair.s.server.counters().running == 0; });
  }(p));
  CHECK(p.at_client.only().span.outcome == errc::disconnected);
  CHECK(p.at_client.only().peer.starts_with("127.0.0.1:"));
  CHECK(p.at_server.only().span.outcome);
}

TEST_CASE("a client that is dropped ends the spans of its calls", "[rpc][device]") {
  traced_pair p;
  p.s.rt.run([](traced_pair& pair) -> task<> {
    cordma::executor& executor = pair.s.rt.executor();
    started call{executor, pair.c.call<wait_for>(1)};
    co_await test::until(executor, [&] { return pair.s.running == 1; });
    pair.c = {};
    co_await test::until(executor,
                         [&] { return call.has_ended() && pair.s.server.counters().running == 0; });
  }(p));
  CHECK(p.at_client.only().span.outcome == errc::closed);
  CHECK(p.at_server.ended.size() == 1);
}

TEST_CASE("a server that drains too long ends the spans of its calls once", "[rpc][device]") {
  manual_clock clock;
  traced_pair p{test::by_hand(clock), {.drain_timeout = 50ms}};
  p.s.rt.run([](traced_pair& pair, manual_clock& time) -> task<> {
    cordma::executor& executor = pair.s.rt.executor();
    started call{executor, pair.c.call<wait_for>(1)};
    co_await test::until(executor, [&] { return pair.s.running == 1; });
    started draining{executor, pair.s.server.drain()};
    started late{executor, pair.c.call<wait_for>(2)};
    co_await test::until(executor, [&] { return late.has_ended(); });
    time.advance(50ms);
    co_await test::until(executor, [&] { return draining.has_ended() && call.has_ended(); });
  }(p, clock));
  for (const span_log* log : {&p.at_client, &p.at_server}) {
    REQUIRE(log->ended.size() == 2);
    CHECK(log->ended[0].span.outcome == errc::shutting_down);
    CHECK(log->ended[1].span.outcome == errc::timed_out);
  }
}

TEST_CASE("a call that is sent again keeps its span, and says so", "[rpc][device]") {
  span_log at_client, at_server;
  rpc_server s{{.tracer = &at_server}};
  reconnecting r{s, {.tracer = &at_client}};
  s.rt.run([](rpc_server& answering, reconnecting& client) -> task<> {
    cordma::executor& executor = answering.rt.executor();
    started call{executor, client.calling.call<wait_again>(2)};
    co_await test::until(executor, [&] { return answering.running == 1; });
    client.lose();
    co_await test::until(executor, [&] { return answering.begun == 2 && answering.running == 1; });
    answering.gate(2).set();
    co_await test::until(executor, [&] { return call.has_ended(); });
    CHECK((*call).take() == 2);
  }(s, r));
  CHECK(at_client.only().span.repeats == 1);
  CHECK_FALSE(at_client.only().span.outcome);
  REQUIRE(at_server.ended.size() == 2);
  for (const kept_span& one : at_server.ended)
    CHECK(one.span.parent_span_id == at_client.only().span.context.span_id);
  CHECK(at_server.ended[0].span.context.span_id != at_server.ended[1].span.context.span_id);
}

TEST_CASE("a call that no connection could be made for has a span without a peer",
          "[rpc][device]") {
  span_log at_client;
  rpc_server s;
  reconnecting r{s, {.reconnect = {.attempts_max = 1}, .tracer = &at_client}};
  r.is_unreachable = true;
  CHECK(s.rt.run(as_result(r.calling.call<echo>({}))).has_failure());
  CHECK(at_client.only().span.outcome == std::errc::connection_refused);
  CHECK(at_client.only().peer.empty());
}

TEST_CASE("calls with spans allocate nothing once warm", "[rpc][device]") {
  struct counting final : rpc::tracer {
    void begin(call_span&) noexcept override { ++begun; }
    void end(const call_span&) noexcept override { ++ended; }
    unsigned begun = 0, ended = 0;
  } tracer;
  rpc_server s{{.tracer = &tracer}};
  rpc::client c = s.make_client({.tracer = &tracer});
  const auto calls = [](rpc::client& calling, unsigned count) -> task<> {
    for (unsigned i = 0; i < count; ++i) {
      const auto back = co_await calling.call<echo>({}, {.trace = given});
      CHECK(back->empty());
    }
  };
  s.rt.run(calls(c, 200));
  const std::uint64_t before = support::allocation_count();
  s.rt.run(calls(c, 1000));
  CHECK(support::allocation_count() - before == 0);
  CHECK(tracer.begun == 2400);
  CHECK(tracer.ended == 2400);
}

TEST_CASE("spans differ in their ids, whatever the seed", "[rpc]") {
  struct dull final : cordma::detail::random_source {
    void fill(std::span<std::byte> out) override { std::ranges::fill(out, std::byte{0}); }
  } zeros;
  const cordma::detail::random_scope scope{zeros};
  span_log log;
  scheduler clock;
  const auto spans = rpc::detail::call_spans::make(&log);
  std::vector<std::string> ids;
  for (int n = 0; n < 1000; ++n) {
    call_span span;
    spans->begin(span, n % 2 == 0 ? given : trace_context{}, clock);
    CHECK_FALSE(span.context.is_none());
    ids.push_back(span.context.to_traceparent().substr(36));
  }
  std::ranges::sort(ids);
  CHECK(std::ranges::adjacent_find(ids) == ids.end());
  CHECK(rpc::detail::call_spans::make(nullptr) == nullptr);
}
