// Streams and calls over connections that take their receives from one pool.
#include <cordma/messages/message_stream.hpp>

#include "request/queue_pair.hpp"
#include "support/outcome.hpp"

#include <support/allocations.hpp>
#include <support/rpc_pair.hpp>
#include <support/skip.hpp>
#include <support/text.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

using namespace cordma;
using test::failure_of;
using namespace std::chrono_literals;
using Catch::Matchers::Contains;
using test::text_of;

namespace {

using std::size_t;

constexpr std::uint32_t share_min = 8;
constexpr std::uint32_t of_messages = share_min - 4;
constexpr size_t buffer_bytes = 72;  ///< A message of 64, and its header.
constexpr size_t long_text = 1000;

shared_receives_options pool_of(std::uint32_t buffers) {
  return {.buffers = buffers, .buffer_bytes = buffer_bytes, .share_min = share_min};
}

/// Number `n` of connection `from`; each seventh is a large one.
std::string numbered(unsigned from, unsigned n) {
  std::string text = std::to_string(from) + "/" + std::to_string(n);
  if (n % 7 == 6) text.resize(long_text, char('a' + from % 20));
  return text;
}

task<> send_text(message_stream& s, std::string text) {
  co_await s.send(std::as_bytes(std::span{text}));
}
task<> send_texts(message_stream& s, unsigned from, unsigned first, unsigned end) {
  for (unsigned n = first; n < end; ++n) co_await send_text(s, numbered(from, n));
}
task<> send_small(message_stream& s, unsigned count) {
  for (unsigned n = 0; n < count; ++n) co_await send_text(s, "small");
}
task<> receive_texts(message_stream& s, unsigned from, unsigned first, unsigned end) {
  for (unsigned n = first; n < end; ++n) {
    const stream_message m = co_await s.receive();
    CHECK(text_of(m.bytes()) == numbered(from, n));
  }
}
task<> keep(message_stream& s, unsigned count, std::vector<stream_message>& kept) {
  while (kept.size() < count) kept.push_back(co_await s.receive());
}

/// Streams whose servers' ends share receives; a receiver that is not ready breaks them at once.
/// The clock stands still.
struct shared_streams {
  explicit shared_streams(const shared_receives_options& of_pool)
      : rt{test::on_test_device(test::by_hand(clock))},
        pool{rt.share_receives(of_pool)},
        acceptor{rt.listen({}, {}, with_pool())} {}
  ~shared_streams() {
    links.clear();
    rt.run(test::all_closed(rt.executor(), clock));
    CHECK(pool.queue_pairs() == 0);
    CHECK(pool.promised() == 0);
  }
  shared_streams(const shared_streams&) = delete;
  shared_streams& operator=(const shared_streams&) = delete;

  static connection_options without_pool() {
    connection_options o = test::never_not_ready();
    o.heartbeat.enabled = false;
    return o;
  }
  [[nodiscard]] connection_options with_pool() const {
    connection_options o = without_pool();
    o.receives_from = &pool;
    return o;
  }

  struct link {
    message_stream client, server;
    [[nodiscard]] receive_share& share() { return *server.connection().qp().share(); }
  };
  link& add(const stream_options& options = {}) {
    rt.run(open_or_close(options));
    return *links.back();
  }
  /// Opens a link; where that fails, waits until the connections that were made are closed.
  task<> open_or_close(stream_options options) {
    std::exception_ptr why;
    try {
      co_await open(without_pool(), options, options);
    } catch (const error&) {
      why = std::current_exception();
    }
    if (why == nullptr) co_return;
    co_await test::all_closed(rt.executor(), clock);
    std::rethrow_exception(why);
  }
  task<> open(connection_options of_client, stream_options client, stream_options server) {
    auto [c, s] =
        co_await when_all(rt.connect(acceptor.local_endpoint(), of_client), acceptor.accept());
    auto made = std::make_unique<link>();
    made->client = message_stream{std::move(c), client};
    made->server = message_stream{std::move(s), server};
    links.push_back(std::move(made));
  }

  void run_until(auto condition) { rt.run(test::until(rt.executor(), condition)); }
  /// Sends messages, which are dropped, until the server's end has that credit.
  void grow(link& l, std::uint32_t credit) {
    struct round {
      static task<> run(link& l, unsigned count) {
        co_await send_small(l.client, count);
        std::vector<stream_message> kept;
        co_await keep(l.server, count, kept);
      }
    };
    for (int n = 0; n < 20 && l.share().credit() < credit; ++n)
      rt.run(round::run(l, std::max(1u, (l.share().credit() - 4) / 2)));
    REQUIRE(l.share().credit() == credit);
  }

  manual_clock clock;
  runtime rt;
  shared_receives& pool;
  listener acceptor;
  std::vector<std::unique_ptr<link>> links;
};

task<> both_ways(shared_streams::link& l, unsigned from, unsigned first, unsigned end) {
  co_await when_all(
      send_texts(l.client, from, first, end), receive_texts(l.server, from, first, end),
      send_texts(l.server, from, first, end), receive_texts(l.client, from, first, end));
}

}  // namespace

TEST_CASE("many streams share a pool, in turns and all at once, and none is found not ready",
          "[messages][device]") {
  constexpr unsigned count = 20;
  shared_streams s{pool_of(count * share_min + 40)};
  for (unsigned n = 0; n < count; ++n) s.add();
  for (unsigned round = 0; round < 2; ++round)
    for (unsigned n = 0; n < count; ++n)
      s.rt.run(both_ways(*s.links[n], n, round * 20, round * 20 + 20));
  s.rt.run([](shared_streams& all) -> task<> {
    scope passing{all.rt.executor()};
    for (unsigned n = 0; n < count; ++n) passing.spawn(both_ways(*all.links[n], n, 40, 140));
    co_await passing.join();
  }(s));
  CHECK(s.pool.promised() <= s.pool.buffers());
  for (const auto& l : s.links) {
    CHECK(l->server.connection().is_open());
    CHECK(l->server.counters().received == 140);
    CHECK(l->share().held() == 0);
  }
}

TEST_CASE("credit starts small, and grows to the stream's depth while messages are there to use it",
          "[messages][device]") {
  shared_streams s{pool_of(256)};
  shared_streams::link& l = s.add({.depth = 100});
  CHECK(l.share().credit() == share_min);
  s.rt.run([](shared_streams& all, shared_streams::link& only) -> task<> {
    scope sending{all.rt.executor()};
    sending.spawn(send_small(only.client, 200));
    co_await test::until(all.rt.executor(), [&] { return only.client.counters().sent == 96; });
    co_await only.client.connection().write(const_local_mr_slice{}, {});
    CHECK(only.client.counters().sent == 96);
    CHECK(only.share().credit() == 100);
    std::vector<stream_message> kept;
    co_await keep(only.server, 96, kept);
    kept.clear();
    co_await keep(only.server, 96, kept);
    kept.clear();
    co_await keep(only.server, 8, kept);
    co_await sending.join();
  }(s, l));
}

TEST_CASE("who passes one message at a time needs no more than the smallest share",
          "[messages][device]") {
  shared_streams s{pool_of(64)};
  shared_streams::link& l = s.add();
  for (unsigned n = 0; n < 100; ++n) s.rt.run(both_ways(l, 1, n, n + 1));
  CHECK(l.share().credit() == share_min);
}

TEST_CASE("what one stream does not use is for another that needs it", "[messages][device]") {
  shared_streams s{pool_of(56)};
  shared_streams::link& idle = s.add();
  shared_streams::link& busy = s.add();
  s.grow(idle, 32);
  s.grow(busy, 16);
  // 49 buffers are not for newcomers, and 48 of them are promised.
  s.grow(busy, 32);
  CHECK(idle.share().credit() == share_min);
  CHECK(s.pool.promised() == 40);
  // The idle stream goes on with what it has.
  s.rt.run(both_ways(idle, 1, 0, 50));
  // The two streams work at once, again and again.
  for (unsigned round = 0; round < 10; ++round)
    s.rt.run(when_all(both_ways(idle, 1, 50, 100), both_ways(busy, 2, 50, 100)));
  CHECK(s.pool.promised() <= s.pool.buffers());
}

TEST_CASE("who keeps messages gives back what it does not need, and goes on",
          "[messages][device]") {
  shared_streams s{pool_of(96)};
  shared_streams::link& keeper = s.add({.depth = 32});
  shared_streams::link& idle = s.add({.depth = 32});
  shared_streams::link& busy = s.add({.depth = 32});
  s.grow(keeper, 32);
  std::vector<stream_message> kept, of_busy;
  s.rt.run(when_all(send_small(keeper.client, 20), keep(keeper.server, 20, kept)));
  s.grow(idle, 32);
  s.grow(busy, 16);
  // 84 buffers are not for newcomers, and 80 of them are promised. The keeper's are not used for
  // longest.
  s.rt.run(when_all(send_small(busy.client, 6), keep(busy.server, 6, of_busy)));
  s.run_until([&] { return busy.share().credit() == 24; });
  CHECK(keeper.share().credit() == 20 + share_min);
  CHECK(idle.share().credit() == 32);
  s.rt.run(when_all(send_small(busy.client, 4), keep(busy.server, 10, of_busy)));
  s.run_until([&] { return busy.share().credit() == 32; });
  CHECK(keeper.share().credit() == 20 + share_min);
  CHECK(idle.share().credit() == share_min);
  // The keeper goes on, though it gives nothing back.
  s.rt.run(when_all(send_small(keeper.client, 2), keep(keeper.server, 22, kept)));
  CHECK(keeper.share().held() == 22);
  kept.clear();
  s.rt.run(both_ways(keeper, 1, 0, 30));
}

TEST_CASE("a stream grows without a message of its own, once others do not need what they have",
          "[messages][device]") {
  shared_streams s{pool_of(48)};
  shared_streams::link& slow = s.add({.depth = 16});
  shared_streams::link& other = s.add({.depth = 32});
  s.grow(other, 32);
  std::vector<stream_message> of_slow, of_other;
  s.rt.run(when_all(send_small(other.client, 26), keep(other.server, 26, of_other)));
  // 42 buffers are not for newcomers, and 40 of them are promised. The other stream has none to
  // give.
  s.rt.run(when_all(send_small(slow.client, of_messages), keep(slow.server, of_messages, of_slow)));
  s.rt.run([](shared_streams& all, shared_streams::link& l, shared_streams::link& from,
              std::vector<stream_message>& kept, std::vector<stream_message>& freed) -> task<> {
    scope sending{all.rt.executor()};
    sending.spawn(send_small(l.client, 1));
    co_await l.client.connection().write(const_local_mr_slice{}, {});
    CHECK(l.client.counters().sent == of_messages);
    CHECK(l.share().credit() == share_min);
    SECTION("they give messages back") {
      freed.clear();
      all.clock.advance(shared_receives::ask_interval);
    }
    SECTION("they close") {
      from.server = {};
      co_await test::all_closed(all.rt.executor(), all.clock);
    }
    co_await sending.join();
    co_await keep(l.server, of_messages + 1, kept);
  }(s, slow, other, of_slow, of_other));
  CHECK(slow.share().credit() == 16);
}

TEST_CASE(
    "buffers of a connection that has gone come back with the last message that is kept of it",
    "[messages][device]") {
  shared_streams s{pool_of(40)};
  stream_message kept;
  {
    shared_streams::link& l = s.add();
    s.rt.run([](shared_streams& all, shared_streams::link& going, stream_message& one) -> task<> {
      co_await send_text(going.client, "kept");
      one = co_await going.server.receive();
      // The messages are in four states: ready, announced and fetched, behind a fetched one, and
      // only announced.
      scope sending{all.rt.executor()};
      co_await send_text(going.client, "ready");
      for (int n = 0; n < 3; ++n) {
        sending.spawn(send_text(going.client, std::string(long_text, 'x')));
        co_await send_text(going.client, "behind");
      }
      co_await test::until(all.rt.executor(), [&] { return going.share().held() >= 6; });
      going.server.connection().qp().abort({.code = errc::device_failed, .call = "test"});
      static_cast<void>(co_await as_result(sending.join()));
    }(s, l, kept));
  }
  s.links.clear();
  s.rt.run(test::all_closed(s.rt.executor(), s.clock));
  // Messages that nobody took hold buffers, too, but for those that never arrived in whole.
  CHECK(s.pool.promised() > 0);
  CHECK(s.pool.promised() <= 6);
  CHECK(text_of(kept.bytes()) == "kept");
  CHECK(std::ranges::equal(kept.slice().bytes(), kept.bytes()));
  shared_streams::link& next = s.add();
  s.rt.run(both_ways(next, 1, 0, 100));
  CHECK(text_of(kept.bytes()) == "kept");
  kept.reset();
  CHECK(s.pool.promised() == next.share().credit());
}

TEST_CASE("for a connection that comes others shrink, and only a pool that is full refuses it",
          "[messages][device]") {
  shared_streams s{pool_of(64)};
  s.grow(s.add(), 32);
  for (unsigned n = 1; n < 8; ++n) {
    s.add();
    s.rt.run(both_ways(*s.links.back(), n, 0, 1));
  }
  CHECK(s.links.front()->share().credit() == share_min);
  CHECK(s.pool.promised() == 64);
  const auto refused = failure_of([&] { s.add(); });
  CHECK_THAT(refused.to_string(), Contains("64 of 64 shared buffers"));
  s.rt.run(both_ways(*s.links.front(), 0, 0, 50));
  s.links.pop_back();
  s.rt.run(test::all_closed(s.rt.executor(), s.clock));
  CHECK(s.pool.queue_pairs() == 7);
  s.add();
}

TEST_CASE("messages are sent on from a pool's buffers, and both ends may share one",
          "[messages][device]") {
  shared_streams s{pool_of(128)};
  s.rt.run(s.open(s.with_pool(), {}, {}));
  shared_streams::link& l = *s.links.back();
  s.rt.run(both_ways(l, 1, 0, 100));
  s.rt.run([](shared_streams::link& both) -> task<> {
    co_await send_text(both.client, "on");
    const stream_message m = co_await both.server.receive();
    co_await both.server.send(m.slice());
    const stream_message back = co_await both.client.receive();
    CHECK(text_of(back.bytes()) == "on");
  }(l));
}

TEST_CASE("a stream refuses a pool that its frames do not fit", "[messages][device]") {
  const auto refusal = [](const shared_receives_options& of_pool, const stream_options& o = {}) {
    shared_streams s{of_pool};
    const failure f = failure_of([&] { s.add(o); });
    CHECK(f.code == errc::limit_exceeded);
    return f.to_string();
  };
  CHECK_THAT(refusal({.buffers = 64, .buffer_bytes = 71}), Contains("buffer_bytes 71"));
  CHECK_THAT(refusal({.buffers = 64, .buffer_bytes = 72, .share_min = 7}), Contains("share_min 7"));
  CHECK_THAT(refusal({.buffers = 64, .buffer_bytes = 72, .share_min = 16}, {.depth = 15}),
             Contains("depth 15"));
}

TEST_CASE("a message in a shared buffer costs a stream no allocation once all is warm",
          "[messages][device]") {
  if (!support::counts_allocations()) CORDMA_SKIP("allocations are not counted here");
  shared_streams s{{.buffers = 64}};
  shared_streams::link& l = s.add();
  const auto exchange = [](shared_streams::link& both, unsigned count) -> task<> {
    std::array<std::byte, 32> bytes{};
    for (; count > 0; --count) {
      for (int n = 0; n < 3; ++n) co_await both.client.send(bytes);
      for (int n = 0; n < 3; ++n) {
        const stream_message m = co_await both.server.receive();
        co_await both.server.send(m.bytes());
        static_cast<void>(co_await both.client.receive());
      }
    }
  };
  s.rt.run(exchange(l, 200));
  const std::uint64_t before = support::thread_allocation_count();
  s.rt.run(exchange(l, 200));
  CHECK(support::thread_allocation_count() == before);
}

TEST_CASE("an idle stream on a pool has no receive buffers of its own", "[messages][device]") {
  constexpr unsigned count = 20;
  constexpr size_t kib = 1024;
  shared_streams s{{.buffers = count * share_min}};
  listener other = s.rt.listen({}, {}, shared_streams::without_pool());
  // Registered memory of a client's end with little, and of a server's.
  const auto of_each = [&] {
    const auto in_use = [&] { return s.rt.memory().statistics().in_use_bytes; };
    s.rt.run(s.open(shared_streams::without_pool(), {.depth = 8}, {}));
    const size_t before = in_use();
    for (unsigned n = 1; n < count; ++n)
      s.rt.run(s.open(shared_streams::without_pool(), {.depth = 8}, {}));
    return (in_use() - before) / (count - 1);
  };
  const size_t shared = of_each();
  CHECK(s.pool.promised() == s.pool.buffers());
  s.links.clear();
  s.rt.run(test::all_closed(s.rt.executor(), s.clock));
  std::swap(s.acceptor, other);
  const size_t without = of_each();
  INFO("with a pool " << shared << ", without " << without);
  CHECK(without - shared >= 64 * 4 * kib);
  CHECK(shared <= 8 * 5 * kib + 16 * kib);
}

TEST_CASE("calls go over a pool of the server's, many at once and one by one",
          "[messages][device]") {
  test::rpc_server s;
  shared_receives& pool = s.rt.share_receives({.buffers = 128});
  connection_options shared = test::never_not_ready();
  shared.receives_from = &pool;
  s.acceptor = s.rt.listen({}, {}, shared);
  {
    std::vector<rpc::client> clients;
    for (int n = 0; n < 4; ++n) clients.push_back(s.make_client());
    struct caller {
      static task<> run(rpc::client& c, unsigned seed) {
        const std::vector<std::byte> bytes(seed % 5 == 4 ? 10'000 : seed, std::byte(seed));
        const auto reply = co_await c.call<test::echo>(test::view{bytes});
        CHECK(std::ranges::equal(*reply, bytes));
      }
    };
    for (rpc::client& c : clients) s.rt.run(caller::run(c, 3));
    s.rt.run([](test::rpc_server& of, std::vector<rpc::client>& all) -> task<> {
      scope calling{of.rt.executor()};
      for (unsigned n = 0; n < 200; ++n) calling.spawn(caller::run(all[n % all.size()], n));
      co_await calling.join();
    }(s, clients));
    CHECK(pool.promised() > 4 * share_min);
    CHECK(pool.promised() <= pool.buffers());
  }
  s.rt.run(test::until(s.rt.executor(), [&] { return pool.queue_pairs() == 0; }));
  CHECK(pool.promised() == 0);
}
