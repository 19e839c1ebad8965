// A client whose connections are lost time and again, by either end, in the middle of its calls.
#include <cordma/rpc/client.hpp>

#include <support/outcome.hpp>
#include <support/rpc_pair.hpp>
#include <support/soak.hpp>

#include <cordma/coro/with_timeout.hpp>

#include <catch2/catch.hpp>

#include <iostream>
#include <random>
#include <utility>
#include <vector>

using namespace cordma;
using namespace std::chrono_literals;
using test::code_of;
using test::reconnecting;
using test::rpc_server;

namespace {

/// The two methods give twice their number.
struct once : rpc::method<"soak.once", std::uint64_t, std::uint64_t> {};
struct again : rpc::method<"soak.again", std::uint64_t, std::uint64_t> {
  static constexpr bool is_idempotent = true;
};

class storm {
 public:
  storm(std::uint64_t seed, std::uint64_t calls) : random_{seed}, calls_{calls}, runs_(calls) {
    s_.server.handle<once>([this](std::uint64_t n, rpc::server_call& c) { return work(n, c); });
    s_.server.handle<again>([this](std::uint64_t n, rpc::server_call& c) { return work(n, c); });
  }

  void run() { s_.rt.run(rage()); }

  [[nodiscard]] std::size_t in_use_bytes() { return s_.rt.memory().statistics().in_use_bytes; }
  rpc::client_counters counters;
  std::uint64_t ran_twice = 0;    ///< calls that ran twice and may not
  std::uint64_t unexplained = 0;  ///< ends for no reason, or for one that cannot be
  std::uint64_t wrong = 0;        ///< wrong answers

 private:
  static constexpr unsigned workers = 8;
  static constexpr std::size_t source_bytes = 1000;

  task<> rage() {
    scope all{s_.rt.executor()};
    for (unsigned n = 0; n < workers; ++n) all.spawn(call_each());
    co_await all.join();
    co_await r_.calling.close();
    counters = std::exchange(r_.calling, {}).counters();
    // The server has nothing of connections that are gone.
    co_await test::until(s_.rt.executor(), [this] {
      return s_.server.counters().connections == 0 && s_.server.counters().running == 0;
    });
  }

  enum class fate { as_it_likes, deadline, stop };

  std::uint64_t below(std::uint64_t n) { return random_() % n; }

  /// The server's end: which loses the connection now and then, before its answer or after it.
  task<std::uint64_t> work(std::uint64_t n, rpc::server_call& call) {
    ++runs_.at(n);
    if (below(4) == 0) co_await sleep_for(std::chrono::microseconds{below(300)});
    if (below(40) == 0) {
      const local_mr read = co_await call.fetch_source(source_bytes);
      if (read.bytes()[0] != std::byte{0x5a}) ++wrong;
    }
    if (below(50) == 0) reconnecting::lose(call.connection());
    co_return 2 * n;
  }

  task<> call_each() {
    while (made_ < calls_) {
      const std::uint64_t n = made_++;
      if (below(50) == 0 && r_.calling.connection() != nullptr) r_.lose();
      if (below(r_.is_unreachable ? 10 : 200) == 0) r_.is_unreachable = !r_.is_unreachable;
      if (below(2) == 0) {
        co_await call<once>(n);
        if (runs_.at(n) > 1) ++ran_twice;
      } else {
        co_await call<again>(n);
      }
    }
  }
  template <class Method>
  task<> call(std::uint64_t n) {
    const auto how = fate(below(20) == 0 ? 1 + below(2) : 0);
    local_mr source = s_.rt.memory().allocate_zeroed(source_bytes);
    source.bytes()[0] = std::byte{0x5a};
    rpc::call_options options{.source = source.slice()};
    const std::chrono::microseconds soon{1 + below(500)};
    if (how == fate::deadline) options.timeout = soon;
    auto op = r_.calling.call<Method>(n, options);
    if (how == fate::stop) {
      note(co_await as_result(with_timeout(std::move(op), soon)), n, how);
    } else {
      note(co_await as_result(std::move(op)), n, how);
    }
  }
  void note(const result<std::uint64_t>& outcome, std::uint64_t n, fate how) {
    if (outcome.has_value()) {
      if (*outcome != 2 * n || runs_.at(n) == 0) ++wrong;
      return;
    }
    const std::error_code why = code_of(outcome);
    if (why == errc::timed_out && how != fate::as_it_likes) return;
    // The handler found its connection gone, or the client did.
    if (why != errc::disconnected && why != errc::handler_failed && why != errc::closed &&
        why != std::errc::connection_refused && why.category() != error::completion_category()) {
      ++unexplained;
    }
  }

  std::mt19937_64 random_;
  const std::uint64_t calls_;
  std::vector<unsigned> runs_;  ///< number of runs of each call
  std::uint64_t made_ = 0;
  rpc_server s_;
  reconnecting r_{
      s_, {.call_timeout = 300s, .reconnect = {.delay = 1ms, .delay_max = 4ms, .attempts_max = 5}}};
};

}  // namespace

TEST_CASE(
    "whatever connections a client loses, its calls end once, and none runs twice that may not",
    "[.soak-reconnects][rpc][device][P3]") {
  const std::uint64_t seed = test::soak::seed();
  const std::uint64_t calls = test::soak::count(100'000);
  storm s{seed, calls};
  const std::size_t in_use_at_first = s.in_use_bytes();
  s.run();
  const rpc::client_counters& n = s.counters;
  std::cout << n.calls << " calls on " << n.connects << " connections: " << n.answered
            << " answered, " << n.lost << " lost, " << n.repeated << " repeated, " << n.timed_out
            << " timed out, " << n.stopped << " stopped, " << n.refused << " refused\n";
  CHECK(n.calls == calls);
  CHECK(n.calls == n.answered + n.refused + n.timed_out + n.stopped + n.lost);
  CHECK(n.answered > calls / 2);
  CHECK(n.connects > calls / 1000);
  CHECK(s.ran_twice == 0);
  CHECK(s.unexplained == 0);
  CHECK(s.wrong == 0);
  CHECK(s.in_use_bytes() == in_use_at_first);
}
