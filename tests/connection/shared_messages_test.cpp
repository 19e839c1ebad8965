// Many connections whose plain messages come into one stock of buffers.
#include "last_message.hpp"
#include "support/allocations.hpp"
#include "support/connected_pair.hpp"
#include "support/connection_socket.hpp"
#include "support/held.hpp"
#include "support/manual_executor.hpp"
#include "support/skip.hpp"
#include "support/unreliable.hpp"
#include "support/until.hpp"

#include <cordma/coro/scope.hpp>
#include <cordma/coro/with_timeout.hpp>
#include <cordma/messages/message_stream.hpp>
#include <cordma/queue/shared_receives.hpp>

#include <catch2/catch.hpp>

#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

using namespace cordma;
using namespace std::chrono_literals;
using support::started;

namespace {

using shared_message = shared_receives::message;
using arrival = shared_receives::arrival;

/// A server whose connections share one stock, and its clients.
struct shop {
  explicit shop(const shared_receives_options& stock, const connection_options& options = {},
                runtime_options of_runtime = {})
      : rt{test::on_test_device(std::move(of_runtime))},
        client_options{options},
        pool{rt.share_receives(stock)},
        acceptor{rt.listen({}, {}, with_pool())} {}

  connection_options with_pool() {
    connection_options o = client_options;
    o.receives_from = &pool;
    return o;
  }
  void open(unsigned count) {
    for (unsigned n = 0; n < count; ++n) {
      auto [c, s] = rt.run(
          when_all(rt.connect(acceptor.local_endpoint(), client_options), acceptor.accept()));
      clients.push_back(std::move(c));
      servers.push_back(std::move(s));
    }
  }
  task<> send(unsigned from, std::uint32_t value) {
    local_mr out = rt.memory().allocate_zeroed(4);
    test::put(out, value);
    co_await clients[from].send(out.slice());
  }
  shared_message next() { return rt.run(pool.next_message()); }
  /// Waits until everything that was dropped has been destroyed.
  void close_dropped() {
    rt.run(test::until(rt.executor(), [&] { return rt.executor().closer().running() == 0; }));
  }

  runtime rt;
  connection_options client_options;
  shared_receives& pool;
  listener acceptor;
  std::vector<connection> clients;
  std::vector<connection> servers;
};

std::uint32_t number_in(const shared_message& m) {
  std::uint32_t value = 0;
  REQUIRE(m.payload().size_bytes() == sizeof value);
  std::memcpy(&value, m.payload().bytes().data(), sizeof value);
  return value;
}

}  // namespace

TEST_CASE("many connections share one stock, and each message tells its connection",
          "[connection][device]") {
  const bool is_uc = GENERATE(false, true);
  // Fewer buffers than connections.
  shop s{{.buffers = 4, .buffer_bytes = 64, .for_messages = true},
         is_uc ? test::unreliable() : connection_options{}};
  s.open(6);
  CHECK(s.pool.promised() == 0);
  for (std::uint32_t n = 0; n < 60; ++n) {
    const unsigned from = n % 6;
    auto [sent, m] = s.rt.run(when_all(s.send(from, n), s.pool.next_message()));
    CHECK(m.qpn() == s.servers[from].verbs().num());
    CHECK(m.size_bytes() == 4);
    CHECK_FALSE(m.immediate());
    CHECK(number_in(m) == n);
  }
}

TEST_CASE("of a shared stock messages come with immediates, and WRITEs with immediates",
          "[connection][device]") {
  shop s{{.buffers = 4, .buffer_bytes = 64, .for_messages = true}};
  s.open(1);
  local_mr out = s.rt.memory().allocate_zeroed(8);
  local_mr target = s.rt.memory(test::all_access).allocate_zeroed(8);
  auto [sent, m] =
      s.rt.run(when_all(s.clients[0].send_with_imm(out.slice(), 7), s.pool.next_message()));
  CHECK(m.immediate() == 7u);
  CHECK_FALSE(m.is_write());
  auto [written, w] = s.rt.run(when_all(
      s.clients[0].write_with_imm(out.slice(), target.remote_slice(), 8), s.pool.next_message()));
  CHECK(w.immediate() == 8u);
  CHECK(w.is_write());
  CHECK(w.size_bytes() == 8);
  CHECK(w.payload().empty());
}

TEST_CASE("messages of a shared stock come in order, and a stopped wait loses none",
          "[connection][device]") {
  shop s{{.buffers = 8, .buffer_bytes = 64, .for_messages = true}};
  s.open(2);
  const auto stop_early = [&]() -> task<> {
    scope waits{s.rt.executor()};
    waits.spawn([](shared_receives& pool) -> task<> {
      static_cast<void>(co_await pool.next_message());
    }(s.pool));
    co_await s.rt.executor().sleep_for(0ms);
    waits.request_stop();
    co_await waits.join();
  };
  s.rt.run(stop_early());
  for (std::uint32_t n = 0; n < 4; ++n) s.rt.run(s.send(n % 2, n));
  for (std::uint32_t n = 0; n < 4; ++n) CHECK(number_in(s.next()) == n);
}

TEST_CASE("a shared message stays if another operation ends first in the same iteration",
          "[connection][device]") {
  runtime_options by_hand;
  by_hand.cq.mode = completion_mode::manual;
  shop s{{.buffers = 8, .buffer_bytes = 64, .for_messages = true}, {}, std::move(by_hand)};
  s.open(1);
  local_mr out = s.rt.memory().allocate_zeroed(4);
  local_mr mark = s.rt.memory(test::all_access).allocate_zeroed(4);
  test::put(out, 7);
  event other{s.rt.executor()};
  started<task<std::size_t>> both{
      s.rt.executor(), [](event& first, shared_receives& pool) -> task<std::size_t> {
        co_return (co_await when_any(first.wait(), pool.next_message())).index();
      }(other, s.pool)};
  const auto sent = s.clients[0].post(send(out.slice()));
  const auto marked = s.clients[0].post(write(out.slice(), mark.remote_slice()));
  s.rt.run(test::written(s.rt, mark, 7));  // The message is here, and not polled for.
  other.set();
  s.rt.poll();
  s.rt.run(test::due_timers_fired());
  REQUIRE(both.has_ended());
  CHECK(both->take() == 0);
  started<task<shared_message>> next{s.rt.executor(), s.pool.next_message()};
  REQUIRE(next.has_ended());
  CHECK(number_in(next->take()) == 7);
}

TEST_CASE("a shared message comes where the program says once it knows size and connection",
          "[connection][device]") {
  const bool is_uc = GENERATE(false, true);
  // One buffer: each comes back at once.
  shop s{{.buffers = 1, .buffer_bytes = 64, .for_messages = true},
         is_uc ? test::unreliable() : connection_options{}};
  s.open(3);
  local_mr out = s.rt.memory().allocate_zeroed(64);
  local_mr all = s.rt.memory().allocate_zeroed(3 * 64);
  unsigned n = 0;
  for (const std::size_t size :
       {std::size_t{0}, std::size_t{1}, std::size_t{63}, std::size_t{64}}) {
    for (unsigned from = 0; from < 3; ++from) {
      std::ranges::fill(out.bytes(), std::byte(++n));
      const auto where = [&](const arrival& next) {
        CHECK(next.qpn == s.servers[from].verbs().num());
        return all.slice(from * 64, next.size_bytes);
      };
      auto [sent, came] = s.rt.run(when_all(s.clients[from].send_with_imm(out.first(size), n),
                                            s.pool.next_message_into(where)));
      CHECK(came.qpn == s.servers[from].verbs().num());
      CHECK(came.size_bytes == size);
      CHECK(came.immediate == n);
      CHECK_FALSE(came.is_write);
      CHECK(std::ranges::count(all.bytes().subspan(from * 64, 64), std::byte(n)) ==
            std::ptrdiff_t(size));
    }
  }
}

TEST_CASE("a WRITE with immediate data to a shared stock asks for no memory",
          "[connection][device]") {
  shop s{{.buffers = 1, .buffer_bytes = 64, .for_messages = true}};
  s.open(1);
  local_mr out = s.rt.memory().allocate_zeroed(8);
  local_mr target = s.rt.memory(test::all_access).allocate_zeroed(8);
  const auto never = [](const arrival&) -> local_mr_slice { throw std::runtime_error{"asked"}; };
  for (std::uint32_t n = 1; n <= 3; ++n) {
    auto [written, w] =
        s.rt.run(when_all(s.clients[0].write_with_imm(out.slice(), target.remote_slice(), n),
                          s.pool.next_message_into(never)));
    CHECK(w.immediate == n);
    CHECK(w.is_write);
    CHECK(w.size_bytes == 8);
  }
}

TEST_CASE("a shared message that the program has no memory for stays, before all others",
          "[connection][device]") {
  shop s{{.buffers = 4, .buffer_bytes = 64, .for_messages = true}};
  s.open(2);
  local_mr good = s.rt.memory().allocate_zeroed(4), gone = s.rt.memory().allocate_zeroed(4);
  verbs::protection_domain other_pd{s.rt.context()};
  mr_allocator elsewhere{other_pd};
  local_mr wrong = elsewhere.allocate_zeroed(4);
  const local_mr_slice stale = gone.slice();
  gone.reset();
  const auto why = [&](const local_mr_slice& given) {
    const auto came =
        s.rt.run(as_result(s.pool.next_message_into([given](const arrival&) { return given; })));
    REQUIRE(came.has_failure());
    CHECK(std::string{came.failure().call} == "next_message_into");
    return came.failure();
  };
  const auto thrower = [](const arrival&) -> local_mr_slice { throw std::runtime_error{"no"}; };
  for (std::uint32_t n = 0; n < 3; ++n) s.rt.run(s.send(n % 2, n));
  for (std::uint32_t n = 0; n < 3; ++n) {
    const failure little = why(good.first(3));
    CHECK(little.code == make_error_code(errc::wrong_length));
    CHECK_THAT(std::string{little.detail.view()}, Catch::Contains("3 bytes for a message of 4"));
    CHECK(why(wrong.slice()).code == make_error_code(errc::wrong_protection_domain));
    CHECK(why(stale).code == make_error_code(errc::stale_slice));
    CHECK_THROWS_AS(s.rt.run(s.pool.next_message_into(thrower)), std::runtime_error);
    const auto came =
        s.rt.run(s.pool.next_message_into([&](const arrival&) { return good.slice(); }));
    CHECK(came.qpn == s.servers[n % 2].verbs().num());
    std::uint32_t value = 99;
    std::memcpy(&value, good.bytes().data(), sizeof value);
    CHECK(value == n);
  }
  // The last one of an empty stock stays as well, and those that come later are behind it.
  s.rt.run(s.send(0, 3));
  CHECK_THROWS_AS(s.rt.run(s.pool.next_message_into(thrower)), std::runtime_error);
  s.rt.run(s.send(1, 4));
  CHECK(number_in(s.next()) == 3);
  CHECK(number_in(s.next()) == 4);
}

TEST_CASE("a shared message that is refused goes to the task that asked next",
          "[connection][device]") {
  shop s{{.buffers = 4, .buffer_bytes = 64, .for_messages = true}};
  s.open(1);
  local_mr to = s.rt.memory().allocate_zeroed(4);
  std::vector<std::uint32_t> asked;
  const auto refusing = [&]() -> task<> {
    const auto came = co_await as_result(s.pool.next_message_into([&](const arrival& next) {
      asked.push_back(next.immediate.value());
      return local_mr_slice{};
    }));
    CHECK(came.has_failure());
  };
  const auto taking = [&]() -> task<> {
    for (int n = 0; n < 2; ++n) {
      const auto came =
          co_await s.pool.next_message_into([&](const arrival&) { return to.slice(); });
      asked.push_back(came.immediate.value());
    }
  };
  const auto sending = [&]() -> task<> {
    for (std::uint32_t n = 1; n <= 2; ++n) co_await s.clients[0].send_with_imm(to.slice(), n);
  };
  s.rt.run(when_all(refusing(), taking(), sending()));
  CHECK(asked == std::vector<std::uint32_t>{1, 1, 2});
}

TEST_CASE("while a shared stock is empty a sender over RC waits, and nothing is lost",
          "[connection][device]") {
  connection_options options;
  options.min_rnr_timer = 28;  // 164 ms, of which there are 7.
  shop s{{.buffers = 2, .buffer_bytes = 64, .for_messages = true}, options};
  s.open(1);
  std::vector<shared_message> kept;
  for (std::uint32_t n = 0; n < 2; ++n) {
    s.rt.run(s.send(0, n));
    kept.push_back(s.next());
  }
  const auto give_back = [&]() -> task<shared_message> {
    co_await s.rt.executor().sleep_for(0ms);
    kept.clear();
    co_return co_await s.pool.next_message();
  };
  auto [sent, late] = s.rt.run(when_all(s.send(0, 2), give_back()));
  CHECK(number_in(late) == 2);
  CHECK(s.clients[0].is_open());
}

TEST_CASE("while a shared stock is empty a message over UC is lost, and the next one arrives",
          "[connection][device]") {
  shop s{{.buffers = 1, .buffer_bytes = 64, .for_messages = true}, test::unreliable()};
  s.open(1);
  s.rt.run(s.send(0, 1));
  shared_message kept = s.next();
  s.rt.run(s.send(0, 2));
  local_mr out = s.rt.memory().allocate_zeroed(4);
  local_mr word = s.rt.memory(test::all_access).allocate_zeroed(4);
  test::put(out, 5);
  s.rt.run(
      when_all(s.clients[0].write(out.slice(), word.remote_slice()), test::written(s.rt, word, 5)));
  kept = {};
  s.rt.run(s.send(0, 3));
  CHECK(number_in(s.next()) == 3);
}

TEST_CASE("a shared stock tells when the device has fewer buffers than a limit",
          "[connection][device]") {
  shop s{{.buffers = 8, .buffer_bytes = 64, .for_messages = true}};
  s.open(1);
  std::vector<shared_message> kept;
  bool is_low = false;
  const auto watch = [&]() -> task<> {
    co_await s.pool.runs_low(5);
    is_low = true;
  };
  const auto fill = [&]() -> task<> {
    for (std::uint32_t n = 0; n < 4; ++n) {
      CHECK_FALSE(is_low);
      co_await s.send(0, n);
      kept.push_back(co_await s.pool.next_message());
    }
  };
  s.rt.run(when_all(watch(), fill()));
  CHECK(is_low);
  CHECK(kept.size() == 4);
  const auto too_high = s.rt.run(as_result(s.pool.runs_low(9)));
  REQUIRE(too_high.has_failure());
  CHECK(too_high.failure().code == make_error_code(errc::limit_exceeded));
}

TEST_CASE("a shared stock that has fewer buffers than a limit already tells at once",
          "[connection][device]") {
  shop s{{.buffers = 8, .buffer_bytes = 64, .for_messages = true}};
  s.open(1);
  std::vector<shared_message> kept;
  for (std::uint32_t n = 0; n < 4; ++n) {
    s.rt.run(s.send(0, n));
    kept.push_back(s.next());
  }
  s.rt.run(with_timeout(s.pool.runs_low(5), 10s));
  CHECK(s.rt.run(as_result(with_timeout(s.pool.runs_low(4), 20ms))).has_failure());
  kept.pop_back();
  CHECK(s.rt.run(as_result(with_timeout(s.pool.runs_low(5), 20ms))).has_failure());
}

TEST_CASE("what a dead connection held of a shared stock comes back", "[connection][device]") {
  shop s{{.buffers = 6, .buffer_bytes = 64, .for_messages = true}};
  s.open(2);
  for (std::uint32_t n = 0; n < 5; ++n) s.rt.run(s.send(0, n));
  s.rt.run(s.send(1, 5));
  shared_message kept = s.next();
  CHECK(number_in(kept) == 0);
  s.clients[0] = {};
  s.servers[0] = {};
  s.close_dropped();
  // The message that the program keeps stays, and those that nobody took are gone.
  CHECK(number_in(kept) == 0);
  shared_message of_other = s.next();
  CHECK(of_other.qpn() == s.servers[1].verbs().num());
  CHECK(number_in(of_other) == 5);
  kept = {};
  of_other = {};
  std::vector<shared_message> all;
  for (std::uint32_t n = 0; n < 6; ++n) {
    s.rt.run(s.send(1, n));
    all.push_back(s.next());
    CHECK(number_in(all.back()) == n);
  }
}

TEST_CASE("a wait for a shared message outlives connections that end while it is served",
          "[connection][device]") {
  shop s{{.buffers = 4, .buffer_bytes = 64, .for_messages = true}};
  s.open(2);
  const auto drop_and_send = [&]() -> task<> {
    co_await s.send(0, 1);
    s.servers[0] = {};
    s.clients[0] = {};
    co_await test::until(s.rt.executor(), [&] { return s.rt.executor().closer().running() == 0; });
    co_await s.send(1, 2);
  };
  const auto wait = [&]() -> task<std::uint32_t> {
    shared_message m = co_await s.pool.next_message();
    while (m.qpn() != s.servers[1].verbs().num()) m = co_await s.pool.next_message();
    co_return number_in(m);
  };
  auto [done, value] = s.rt.run(when_all(drop_and_send(), wait()));
  CHECK(value == 2);
}

TEST_CASE("a stock is for streams or for messages, and says which", "[connection][device]") {
  shop s{{.buffers = 8, .buffer_bytes = 512, .for_messages = true}};
  s.open(1);
  CHECK_THROWS_WITH(message_stream{std::move(s.servers[0])}, Catch::Contains("for_messages"));
  shared_receives& of_streams = s.rt.share_receives({.buffers = 8});
  const auto none = [](const arrival&) { return local_mr_slice{}; };
  CHECK(s.rt.run(as_result(of_streams.next_message_into(none))).has_failure());
  const auto refused = s.rt.run(as_result(of_streams.next_message()));
  REQUIRE(refused.has_failure());
  CHECK_THAT(refused.failure().to_string(), Catch::Contains("for_messages"));
}

TEST_CASE("a shared message in a warm program allocates nothing", "[connection][device]") {
  if (!support::counts_allocations()) CORDMA_SKIP("its malloc is not counted");
  shop s{{.buffers = 8, .buffer_bytes = 64, .for_messages = true}};
  s.open(3);
  local_mr out = s.rt.memory().allocate_zeroed(4);
  const auto where = [&](const arrival& next) { return out.first(next.size_bytes); };
  const auto exchange = [&](unsigned rounds) -> task<> {
    for (unsigned n = 0; n < rounds; ++n) {
      co_await s.clients[n % 3].send(out.slice());
      static_cast<void>(co_await s.pool.next_message());
      co_await s.clients[n % 3].send(out.slice());
      static_cast<void>(co_await s.pool.next_message_into(where));
    }
  };
  s.rt.run(exchange(30));
  const auto before = support::thread_allocation_count();
  s.rt.run(exchange(300));
  CHECK(support::thread_allocation_count() == before);
}

TEST_CASE("what the device has taken until the peer's end comes to the stock",
          "[connection][soft0]") {
  shop s{{.buffers = 4, .share_min = 1, .for_messages = true}};
  s.open(1);
  local_mr out = s.rt.memory().allocate_zeroed(4);
  test::put(out, 17u);
  const test::last_message last{s.clients[0], out.slice()};
  ::shutdown(test::socket_of(s.clients[0]), SHUT_WR);
  CHECK(number_in(s.next()) == 17);
}
