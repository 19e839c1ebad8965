// Memory that a call lends to its handler.
#include <support/manual_executor.hpp>
#include <support/outcome.hpp>
#include <support/rpc_pair.hpp>

#include "queue/send_queue.hpp"
#include "request/queue_pair.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <stdexcept>
#include <vector>

using namespace cordma;
using namespace std::chrono_literals;
using support::started;
using test::check_echo;
using test::code_of;
using test::echo;
using test::pattern;
using test::reconnecting;
using test::rpc_server;
using test::view;
using test::wait_for;
using test::why_it_fails;

namespace {

using std::size_t;

/// Reads the source into memory of its own, writes that to the sink, and says how much.
struct copy : rpc::method<"test.copy", rpc::nothing, std::uint64_t> {};

task<std::uint64_t> copy_bulk(rpc::server_call& call, isolation& of_sink) {
  const local_mr between = co_await call.fetch_source(1 << 20);
  const remote_mr to = call.sink();
  of_sink = to.isolation();
  co_await call.connection().write(between.slice(), to.first(between.size_bytes()));
  co_return between.size_bytes();
}

struct copying_server : rpc_server {
  copying_server() {
    server.handle<copy>(
        [this](rpc::nothing, rpc::server_call& call) { return copy_bulk(call, of_sink); });
  }
  isolation of_sink = isolation::shared_key;
};

}  // namespace

TEST_CASE("a handler reads the caller's source and writes its sink, without a copy",
          "[rpc][device]") {
  copying_server s;
  rpc::client c = s.make_client();
  const size_t size = 1 << 20;
  local_mr source = s.rt.memory().allocate_uninitialized(size);
  local_mr sink = s.rt.memory().allocate_zeroed(2 * size);
  std::ranges::copy(pattern(size), source.bytes().begin());
  s.rt.run([](rpc::client& calling, local_mr& from, local_mr& to) -> task<> {
    for (int n = 0; n < 3; ++n) {
      std::ranges::fill(to.bytes(), std::byte{0});
      const std::uint64_t copied = co_await calling.call<copy>(
          {}, {.source = from.slice(), .sink = to.slice(100, from.size_bytes())});
      CHECK(copied == from.size_bytes());
      CHECK(std::ranges::equal(to.slice(100, from.size_bytes()).bytes(), from.bytes()));
      CHECK(to.bytes()[99] == std::byte{0});
      CHECK(to.bytes()[100 + from.size_bytes()] == std::byte{0});
      // The peer reaches the memory no more.
      CHECK(calling.connection()->lending().open == 0);
    }
  }(c, source, sink));
}

TEST_CASE("a handler that asks for memory which its caller does not lend is told so",
          "[rpc][device]") {
  struct ask_twice : rpc::method<"test.ask_twice"> {};
  copying_server s;
  s.server.handle<ask_twice>([](rpc::nothing, rpc::server_call& call) -> task<rpc::nothing> {
    CHECK(call.has_source());
    CHECK(!call.has_sink());
    static_cast<void>(call.source());
    static_cast<void>(call.source());
    co_return {};
  });
  rpc::client c = s.make_client();
  local_mr source = s.rt.memory().allocate_zeroed(4096);
  s.rt.run([](rpc::client& calling, local_mr& from) -> task<> {
    failure f = co_await why_it_fails<copy>(calling, {}, {});
    CHECK(f.code == errc::handler_failed);
    CHECK(f.detail.view().find("the caller has no source") != std::string_view::npos);
    local_mr large = calling.connection()->memory().allocate_uninitialized((1 << 20) + 1);
    f = co_await why_it_fails<copy>(calling, {}, {.source = large.slice()});
    CHECK(f.detail.view().find("1048577 bytes, the handler takes 1048576") !=
          std::string_view::npos);
    f = co_await why_it_fails<ask_twice>(calling, {}, {.source = from.slice()});
    CHECK(f.detail.view().find("asked for before") != std::string_view::npos);
    CHECK(calling.connection()->lending().open == 0);
    co_await check_echo(calling, pattern(10));
  }(c, source));
}

TEST_CASE("a stopped call ends when the server's access to its memory has", "[rpc][device]") {
  struct hold : rpc::method<"test.hold", std::uint32_t, std::uint32_t> {};
  rpc_server s;
  s.stubborn = true;
  s.server.handle<hold>([&s](std::uint32_t n, rpc::server_call& call) -> task<std::uint32_t> {
    const remote_mr to = call.sink();
    const std::uint32_t answer = co_await s.wait(n);
    co_return answer;
  });
  rpc::client c = s.make_client();
  local_mr sink = s.rt.memory().allocate_zeroed(4096);
  s.rt.run([](rpc_server& answering, rpc::client& calling, local_mr& to) -> task<> {
    cordma::executor& executor = answering.rt.executor();
    started call{executor, calling.call<hold>(1, {.sink = to.slice()})};
    co_await test::until(executor, [&] { return answering.running == 1; });
    CHECK(calling.connection()->lending().open == 1);
    call.request_stop();
    co_await test::until(executor, [&] { return call.has_ended(); });
    CHECK((*call).take_result().is_cancelled());
    CHECK(calling.connection()->lending().open == 0);
    answering.open(1);
    co_await test::until(executor, [&] { return calling.counters().late == 1; });
  }(s, c, sink));
}

TEST_CASE("a call whose memory cannot be lent fails, and is not sent", "[rpc][device]") {
  copying_server s;
  rpc::client c = s.make_client();
  const const_local_mr_slice stale = s.rt.memory().allocate_zeroed(4096).slice();
  local_mr good = s.rt.memory().allocate_zeroed(4096);
  s.rt.run([](rpc::client& calling, const_local_mr_slice from, local_mr& to) -> task<> {
    failure f = co_await why_it_fails<copy>(calling, {}, {.source = from});
    CHECK(f.code == errc::stale_slice);
    // The source was lent before the sink failed, but nobody heard of the source.
    f = co_await why_it_fails<copy>(calling, {},
                                    {.source = to.slice(), .sink = to.slice().standing()});
    CHECK(f.code == errc::stale_slice);
    co_await check_echo(calling, pattern(10));
    CHECK(calling.connection()->lending().open == 0);
  }(c, stale, good));
  CHECK(s.server.counters().calls == 1);
}

TEST_CASE("what a call lends ends with it, whoever keeps it", "[rpc][device][R7]") {
  struct keep : rpc::method<"test.keep", std::uint32_t> {};
  rpc_server s;
  remote_mr kept;
  connection* at_server = nullptr;
  s.server.handle<keep>([&](std::uint32_t n, rpc::server_call& call) -> task<rpc::nothing> {
    at_server = &call.connection();
    kept = call.source();
    CHECK(kept.size_bytes() == 4096);
    CHECK(kept.access() == verbs::access::remote_read);
    CHECK(kept.remaining() > 0ms);
    CHECK(kept.remaining() <= 10s + 10ms);
    CHECK(at_server->leases().size() == 1);
    const auto renewed = co_await as_result(kept.renew(1s));
    CHECK(code_of(renewed) == errc::not_supported);
    if (n == 1) throw std::runtime_error{"enough"};
    if (n == 2) {
      const auto handed_over = co_await as_result(at_server->send_remote_mr(std::move(kept)));
      CHECK(code_of(handed_over) == errc::not_supported);
    }
    co_return {};
  });
  rpc::client c = s.make_client();
  local_mr source = s.rt.memory().allocate_zeroed(4096);
  s.rt.run(
      [](rpc::client& calling, local_mr& from, remote_mr& theirs, connection*& server) -> task<> {
        const rpc::call_options lent{.source = from.slice()};
        for (const std::uint32_t n : {0u, 1u, 2u, 3u}) {
          const auto outcome = co_await as_result(calling.call<keep>(n, lent));
          CHECK(outcome.has_value() == (n != 1));
          CHECK(calling.connection()->lending().open == 0);
          CHECK(calling.connection()->lending().forced == 0);
          CHECK(server->lending().borrowed == 0);
          if (!theirs) continue;
          CHECK(theirs.remaining() == 0ms);
          local_mr to = server->memory().allocate_zeroed(4096);
          const auto read = co_await as_result(server->read(to.slice(), theirs.slice()));
          REQUIRE(read.has_failure());
          CHECK(read.failure().code == errc::lease_ended);
        }
        co_await check_echo(calling, pattern(10));
      }(c, source, kept, at_server));
}

TEST_CASE("an answer waits for what its handler reads and has not awaited, and so does a refusal",
          "[rpc][device]") {
  struct read_on : rpc::method<"test.read_on", std::uint32_t, view> {};
  rpc_server s;
  local_mr to = s.rt.memory().allocate_zeroed(1 << 20);
  const std::vector<std::byte> long_reply(8192);
  s.server.handle<read_on>([&](std::uint32_t reply_bytes, rpc::server_call& call) -> task<view> {
    const remote_mr from = call.source();
    // The handler does not await the reads: they go on.
    for (std::size_t n = 0; n < 4; ++n) {
      const std::size_t size = to.size_bytes() / 4;
      static_cast<void>(
          call.connection().post(read(to.slice(n * size, size), from.slice(n * size, size))));
    }
    co_return view{long_reply}.first(reply_bytes);
  });
  rpc::client c = s.make_client({.stream = {.message_bytes_max = 4096}});
  local_mr source = s.rt.memory().allocate_uninitialized(1 << 20);
  std::ranges::copy(pattern(source.size_bytes()), source.bytes().begin());
  s.rt.run([](rpc::client& calling, local_mr& from, local_mr& landing) -> task<> {
    for (int n = 0; n < 10; ++n) {
      std::ranges::fill(landing.bytes(), std::byte{0});
      const bool is_too_long = n % 2 == 1;
      const auto outcome = co_await as_result(
          calling.call<read_on>(is_too_long ? 8192 : 0, {.source = from.slice()}));
      CHECK(code_of(outcome) ==
            (is_too_long ? make_error_code(errc::wrong_length) : std::error_code{}));
      CHECK(std::ranges::equal(landing.bytes(), from.bytes()));
    }
    co_await check_echo(calling, pattern(10));
  }(c, source, to));
}

TEST_CASE("a call that lends and is stopped before it runs has its memory back at once",
          "[rpc][device][P7]") {
  manual_clock clock;  // The clock stands still: nothing comes back by a deadline.
  rpc_server s{{.calls_per_connection_max = 1}, test::by_hand(clock)};
  rpc::client c = s.make_client();
  local_mr source = s.rt.memory().allocate_zeroed(4096);
  const std::vector<std::byte> large(100'000);
  s.rt.run([](rpc_server& answering, rpc::client& calling, local_mr& from, view text) -> task<> {
    cordma::executor& executor = answering.rt.executor();
    const rpc::call_options lent{.source = from.slice()};
    started first{executor, calling.call<wait_for>(1)};
    co_await test::until(executor, [&] { return answering.running == 1; });
    started waiting{executor, calling.call<wait_for>(2, lent)};
    started announced{executor, calling.call<echo>(text, lent)};
    CHECK(calling.connection()->lending().open == 3);  // Two sources, and the large request.
    co_await test::until(executor, [&] { return answering.server.streams().received >= 1; });
    waiting.request_stop();
    announced.request_stop();
    co_await test::until(executor, [&] { return waiting.has_ended(); });
    answering.gate(1).set();
    co_await test::until(executor, [&] { return announced.has_ended() && first.has_ended(); });
    CHECK((*waiting).take_result().is_cancelled());
    CHECK((*announced).take_result().is_cancelled());
    CHECK((*first).take() == 1);
    CHECK(calling.connection()->lending().open == 0);
    CHECK(calling.connection()->lending().forced == 0);
    CHECK(answering.begun == 1);
    co_await check_echo(calling, pattern(10));
  }(s, c, source, large));
}

TEST_CASE("a call that waits to be sent lends nothing yet", "[rpc][device]") {
  rpc_server s;
  rpc::client c = s.make_client({.calls_max = 1});
  local_mr source = s.rt.memory().allocate_zeroed(4096);
  s.rt.run([](rpc_server& answering, rpc::client& calling, local_mr& from) -> task<> {
    cordma::executor& executor = answering.rt.executor();
    const rpc::call_options lent{.source = from.slice()};
    started first{executor, calling.call<wait_for>(1, lent)};
    started second{executor, calling.call<wait_for>(2, lent)};
    co_await test::until(executor, [&] { return answering.running == 1; });
    CHECK(calling.connection()->lending().open == 1);
    second.request_stop();
    CHECK((*second).take_result().is_cancelled());
    answering.gate(1).set();
    co_await test::until(executor, [&] { return first.has_ended(); });
    CHECK((*first).take() == 1);
  }(s, c, source));
}

TEST_CASE("an idempotent call that lends is repeated on another connection", "[rpc][device]") {
  rpc_server s;
  reconnecting r{s};
  local_mr source = s.rt.memory().allocate_zeroed(4096);
  s.rt.run([](rpc_server& answering, reconnecting& client, local_mr& from) -> task<> {
    cordma::executor& executor = answering.rt.executor();
    const rpc::call_options lent{.source = from.slice()};
    started again{executor, client.calling.call<test::wait_again>(1, lent)};
    started once{executor, client.calling.call<wait_for>(2, lent)};
    co_await test::until(executor, [&] { return answering.running == 2; });
    client.lose();
    co_await test::until(executor, [&] { return answering.begun == 3; });
    CHECK(code_of((*once).take_result()) == errc::disconnected);
    CHECK(client.calling.connection()->lending().open == 1);
    answering.gate(1).set();
    co_await test::until(executor, [&] { return again.has_ended(); });
    CHECK((*again).take() == 1);
    CHECK(client.calling.connection()->lending().open == 0);
  }(s, r, source));
  CHECK(r.calling.counters().repeated == 1);
}

TEST_CASE(
    "a call that lends both is five requests of its caller's, less those that its answer does",
    "[rpc][device]") {
  copying_server s;
  rpc::client c = s.make_client();
  local_mr source = s.rt.memory().allocate_zeroed(4096);
  local_mr sink = s.rt.memory().allocate_zeroed(4096);
  s.rt.run(
      [](rpc::client& calling, local_mr& from, local_mr& to, const isolation& isolated) -> task<> {
        const send_queue& sends = calling.connection()->qp().sends();
        const std::uint32_t before = sends.posted_total();
        constexpr std::uint32_t calls = 100;
        for (std::uint32_t n = 0; n < calls; ++n) {
          const std::uint64_t copied =
              co_await calling.call<copy>({}, {.source = from.slice(), .sink = to.slice()});
          CHECK(copied == 4096);
          CHECK(calling.connection()->lending().open == 0);
        }
        // Two binds, the request, two invalidations, and now and then credits. The agents say
        // nothing. An answer can invalidate one, where windows are as the specification says.
        const auto& driver = calling.connection()->qp().driver();
        const std::uint64_t invalidated = driver.requests().of(request_kind::invalidate).completed;
        const std::uint64_t credits = calling.stream().credit_frames;
        CHECK(sends.posted_total() - before == 3 * calls + invalidated + credits);
        CHECK(invalidated == (isolated == isolation::exact ? calls : 2 * calls));
        CHECK(calling.connection()->lending().returned == 2 * calls);
      }(c, source, sink, s.of_sink));
}

TEST_CASE("a request goes behind the binds of what it lends, however full the send queue is",
          "[rpc][device][E6]") {
  copying_server s;
  rpc::client c = s.make_client();
  local_mr source = s.rt.memory().allocate_uninitialized(4096);
  local_mr sink = s.rt.memory().allocate_zeroed(4096);
  std::ranges::copy(pattern(4096), source.bytes().begin());
  s.rt.run([](rpc_server& answering, rpc::client& calling, local_mr& from, local_mr& to) -> task<> {
    cordma::executor& executor = answering.rt.executor();
    queue_pair& qp = calling.connection()->qp();
    const rpc::call_options lent{.source = from.slice(), .sink = to.slice()};
    const auto write_nothing = [] { return write(const_local_mr_slice{}, remote_mr_slice{}); };
    // The queue is full, or has room for one or two of three requests, or a batch waits for room.
    const std::uint32_t depth = qp.sends().depth();
    for (const std::uint32_t taken : {depth, depth - 1, depth - 2}) {
      std::ranges::fill(to.bytes(), std::byte{0});
      for (std::uint32_t n = 0; n < taken; ++n) static_cast<void>(qp.post(write_nothing()));
      if (taken == depth - 2)
        static_cast<void>(qp.post_all(write_nothing(), write_nothing(), write_nothing()));
      const std::uint32_t before = qp.sends().posted_total();
      started call{executor, calling.call<copy>({}, lent)};
      CHECK(qp.sends().posted_total() == before);
      co_await test::until(executor, [&] { return call.has_ended(); });
      CHECK((*call).take() == 4096);
      CHECK(std::ranges::equal(to.bytes(), from.bytes()));
    }
    // A call that is stopped before it was sent lends nothing any more.
    for (std::uint32_t n = 0; n < depth; ++n) static_cast<void>(qp.post(write_nothing()));
    started stopped{executor, calling.call<copy>({}, lent)};
    stopped.request_stop();
    CHECK((*stopped).take_result().is_cancelled());
    co_await test::until(executor, [&] { return calling.connection()->lending().open == 0; });
    co_await check_echo(calling, pattern(10));
  }(s, c, source, sink));
  CHECK(s.server.counters().calls == 4);
}

TEST_CASE("calls lend beyond the leases that a peer may have", "[rpc][device]") {
  copying_server s;
  connection_options few = test::never_not_ready();
  few.agent.lending.leases_max = 1;
  rpc::client c = s.rt.run([](rpc_server& to, connection_options with) -> task<rpc::client> {
    auto [there, here] =
        co_await when_all(to.rt.connect(to.acceptor.local_endpoint(), with), to.acceptor.accept());
    to.work.spawn(to.serve(std::move(here)));
    co_return rpc::client{std::move(there)};
  }(s, few));
  local_mr source = s.rt.memory().allocate_zeroed(4096);
  s.rt.run([](rpc_server& answering, rpc::client& calling, local_mr& from) -> task<> {
    cordma::executor& executor = answering.rt.executor();
    const rpc::call_options lent{.source = from.slice()};
    const auto one = [&](std::uint32_t n) { return calling.call<wait_for>(n, lent); };
    started first{executor, one(1)};
    started second{executor, one(2)};
    started third{executor, one(3)};
    co_await test::until(executor, [&] { return answering.running == 3; });
    CHECK(calling.connection()->lending().open == 3);
    CHECK(calling.connection()->leases().size() == 3);
    for (const std::uint32_t n : {1u, 2u, 3u}) answering.gate(n).set();
    co_await test::until(
        executor, [&] { return first.has_ended() && second.has_ended() && third.has_ended(); });
    CHECK((*first).take() + (*second).take() + (*third).take() == 6);
  }(s, c, source));
}

TEST_CASE("a client that closes has what its calls lent back before", "[rpc][device]") {
  rpc_server s;
  rpc::client c = s.make_client();
  local_mr sink = s.rt.memory().allocate_zeroed(4096);
  s.rt.run([](rpc_server& answering, rpc::client& calling, local_mr& to) -> task<> {
    cordma::executor& executor = answering.rt.executor();
    started lending{executor, calling.call<wait_for>(1, {.sink = to.slice()})};
    started other{executor, calling.call<wait_for>(2)};
    co_await test::until(executor, [&] { return answering.running == 2; });
    started closing{executor, calling.close()};
    co_await test::until(executor, [&] { return other.has_ended(); });
    CHECK_FALSE(lending.has_ended());
    CHECK(calling.connection()->lending().open == 1);
    const auto meanwhile = co_await as_result(calling.call<echo>({}));
    CHECK(code_of(meanwhile) == errc::closed);
    co_await test::until(executor, [&] { return closing.has_ended(); });
    (*closing).take();
    CHECK(code_of((*lending).take_result()) == errc::closed);
    CHECK(code_of((*other).take_result()) == errc::closed);
    const auto late = co_await as_result(calling.call<echo>({}));
    CHECK(code_of(late) == errc::closed);
  }(s, c, sink));
  CHECK(s.stopped == 2);
}

TEST_CASE("a large answer waits for what its handler reads, too", "[rpc][device]") {
  struct read_on : rpc::method<"test.read_on_large", rpc::nothing, std::vector<std::byte>> {};
  rpc_server s;
  local_mr to = s.rt.memory().allocate_zeroed(1 << 20);
  s.server.handle<read_on>(
      [&to](rpc::nothing, rpc::server_call& call) -> task<std::vector<std::byte>> {
        static_cast<void>(call.connection().post(read(to.slice(), call.source().slice())));
        co_return pattern(100'000);
      });
  rpc::client c = s.make_client();
  local_mr source = s.rt.memory().allocate_uninitialized(1 << 20);
  std::ranges::copy(pattern(source.size_bytes()), source.bytes().begin());
  s.rt.run([](rpc::client& calling, local_mr& from, local_mr& landing) -> task<> {
    const auto answer = co_await calling.call<read_on>({}, {.source = from.slice()});
    CHECK(answer == pattern(100'000));
    CHECK(std::ranges::equal(landing.bytes(), from.bytes()));
    co_await check_echo(calling, pattern(10));
  }(c, source, to));
}

TEST_CASE("a handler that uses what was lent after its deadline has been stopped by that",
          "[rpc][device][P2]") {
  struct late : rpc::method<"test.late"> {};
  manual_clock clock;
  rpc_server s{{}, test::by_hand(clock)};
  s.server.handle<late>([&clock](rpc::nothing, rpc::server_call& call) -> task<rpc::nothing> {
    const remote_mr from = call.source();
    clock.advance(60ms);
    local_mr to = call.connection().memory().allocate_zeroed(64);
    co_await call.connection().read(to.slice(), from.slice());
    co_return {};
  });
  rpc::client c = s.make_client();
  local_mr source = s.rt.memory().allocate_zeroed(64);
  s.rt.run([](rpc_server& answering, rpc::client& calling, local_mr& from) -> task<> {
    const failure f =
        co_await why_it_fails<late>(calling, {}, {.timeout = 50ms, .source = from.slice()});
    CHECK(f.code == errc::timed_out);
    co_await test::until(answering.rt.executor(),
                         [&] { return answering.server.counters().stopped == 1; });
    co_await check_echo(calling, pattern(10));
  }(s, c, source));
  CHECK(s.server.counters().failed == 0);
}

TEST_CASE("a call that lends gets its turn however many requests wait for room", "[rpc][device]") {
  copying_server s;
  rpc::client c = s.make_client();
  local_mr source = s.rt.memory().allocate_zeroed(4096);
  local_mr sink = s.rt.memory().allocate_zeroed(4096);
  s.rt.run([](rpc_server& answering, rpc::client& calling, local_mr& from, local_mr& to) -> task<> {
    queue_pair& qp = calling.connection()->qp();
    bool is_over = false;
    const auto write_on = [&]() -> task<> {
      while (!is_over) co_await qp.write(const_local_mr_slice{}, remote_mr_slice{});
    };
    scope writers{answering.rt.executor()};
    // More requests than are reaped at once: the queue is always full and others wait.
    for (std::uint32_t n = 0; n < 16 * qp.sends().depth(); ++n) writers.spawn(write_on());
    const std::uint64_t copied =
        co_await calling.call<copy>({}, {.source = from.slice(), .sink = to.slice()});
    CHECK(copied == 4096);
    co_await check_echo(calling, pattern(10));
    is_over = true;
    co_await writers.join();
  }(s, c, source, sink));
}

TEST_CASE("a reply that may not be lent is answered by why", "[rpc][device]") {
  struct text : rpc::method<"test.text", std::uint32_t, std::string> {};
  rpc_server s;
  s.server.handle<text>([](std::uint32_t n) -> task<std::string> {
    const std::string reply(n, 'x');
    co_return reply;
  });
  connection_options one_lease = test::never_not_ready();
  one_lease.agent.lending.total_leases_max = 1;
  listener acceptor = s.rt.listen({}, {}, one_lease);
  s.rt.run([](rpc_server& answering, listener& at) -> task<> {
    auto [there, here] = co_await when_all(
        answering.rt.connect(at.local_endpoint(), test::never_not_ready()), at.accept());
    const loan taken = co_await here.send_local_mr(here.memory().allocate_zeroed(64));
    answering.work.spawn(answering.serve(std::move(here)));
    rpc::client calling{std::move(there)};
    const failure why = co_await why_it_fails<text>(calling, 100'000);
    CHECK(why.code == errc::handler_failed);
    CHECK(why.detail.view().find("total_leases_max") != std::string_view::npos);
    CHECK(answering.server.counters().failed == 1);
    CHECK(answering.server.counters().replied == 0);
    const std::string next = co_await calling.call<text>(10);
    CHECK(next.size() == 10);
    co_await calling.close();
  }(s, acceptor));
}
