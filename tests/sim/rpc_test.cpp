#include "open_network.hpp"

#include <cordma/rpc/client.hpp>
#include <cordma/rpc/server.hpp>
#include <cordma/sim.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <string>

using namespace cordma;
using namespace std::chrono_literals;

namespace {

struct increment : rpc::method<"test.increment", std::uint64_t, std::uint64_t> {};

task<> serve_one(runtime& rt, const sim::host& here) {
  rpc::server server;
  server.handle<increment>([](std::uint64_t n) -> task<std::uint64_t> { co_return n + 1; });
  listener listening = rt.listen(here.endpoint(test::sim_port));
  co_await server.serve(co_await listening.accept());
}

task<> call(runtime& rt, endpoint server, std::uint64_t calls, std::uint64_t& sum) {
  co_await sleep_for(1ms);  // The server listens by then.
  rpc::client client{co_await rt.connect(server)};
  for (std::uint64_t n = 0; n < calls; ++n) sum = co_await client.call<increment>(sum);
  co_await client.close();
}

/// Returns the hash of the run.
std::uint64_t run_calls(std::uint64_t seed, const sim::faults& wanted) {
  sim::world w{seed, wanted};
  sim::host& a = w.add_host("a");
  sim::host& b = w.add_host("b");
  std::uint64_t sum = 0;
  b.start([&](runtime& rt) { return serve_one(rt, b); }, test::open_network);
  a.start([&](runtime& rt) { return call(rt, b.endpoint(test::sim_port), 20, sum); },
          test::open_network);
  w.run(1s);  // A close that waits for a peer in vain takes 2 s.
  CHECK(sum == 20);
  return w.trace_hash();
}

struct reverse : rpc::method<"test.reverse", std::string, std::string> {};

task<> serve_many(runtime& rt, const sim::host& here) {
  rpc::server server;
  server.handle<reverse>([](std::string v) -> task<std::string> {
    std::ranges::reverse(v);
    co_await sleep_for(100us);
    co_return v;
  });
  listener listening = rt.listen(here.endpoint(test::sim_port));
  for (;;) {
    connection conn = co_await listening.accept();
    static_cast<void>(co_await as_result(server.serve(std::move(conn))));
  }
}

task<> call_many(runtime& rt, endpoint server, std::uint64_t seed, unsigned& done) {
  for (unsigned attempt = 0; attempt < 50 && done < 30; ++attempt) {
    auto made = co_await as_result(rt.connect(server));
    if (!made.has_value()) {
      co_await sleep_for(5ms);
      continue;
    }
    rpc::client client{std::move(made).value()};
    for (; done < 30; ++done) {
      std::string sent((seed * 31 + done * 977) % 40000, ' ');
      for (std::size_t i = 0; i < sent.size(); ++i) sent[i] = char(i * 7 + done);
      result<std::string> replied = co_await as_result(client.call<reverse>(sent));
      if (!replied.has_value()) break;
      std::ranges::reverse(sent);
      if (std::move(replied).value() != sent) throw std::runtime_error{"a wrong reply"};
    }
  }
}

void kill_one(std::uint64_t seed, bool server_dies) {
  sim::world w{seed, seed % 2 == 0 ? sim::faults::none() : sim::faults::harsh()};
  sim::host& a = w.add_host("a");
  sim::host& b = w.add_host("b");
  unsigned done = 0;
  const auto serve = [&](runtime& rt) { return serve_many(rt, b); };
  b.start(serve, test::open_network);
  a.start([&](runtime& rt) { return call_many(rt, b.endpoint(test::sim_port), seed, done); },
          test::open_network);
  const auto when = seed * 7919 % 20 * 1ms + 337us * (seed % 13);
  w.after(when, [&] {
    if (server_dies) {
      b.kill();
      b.start(serve, test::open_network);
    } else {
      a.kill();
    }
  });
  w.after(300s, [&] { b.kill(); });
  w.run();
  if (server_dies) CHECK(done == 30);
}

}  // namespace

TEST_CASE("all calls are answered although the server dies once", "[sim]") {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    INFO("seed " << seed);
    kill_one(seed, true);
  }
}

TEST_CASE("a server serves on when a client dies", "[sim]") {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    INFO("seed " << seed);
    kill_one(seed, false);
  }
}

TEST_CASE("hosts of a world connect by their addresses, and call each other", "[sim]") {
  const std::uint64_t first = run_calls(1, sim::faults::none());
  CHECK(run_calls(1, sim::faults::none()) == first);
}

TEST_CASE("calls are answered over a slow and jerky network", "[sim]") {
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    INFO("seed " << seed);
    run_calls(seed, sim::faults::harsh());
  }
}

TEST_CASE("a seed repeats its calls, however slow and jerky the network", "[sim]") {
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    INFO("seed " << seed);
    CHECK(run_calls(seed, sim::faults::harsh()) == run_calls(seed, sim::faults::harsh()));
  }
}

TEST_CASE("nobody listens at a port of a simulated host", "[sim]") {
  sim::world w{1};
  sim::host& a = w.add_host("a");
  sim::host& b = w.add_host("b");
  std::string why;
  b.start([](runtime&) -> task<> { co_await sleep_for(1s); });
  a.start(
      [&](runtime& rt) -> task<> {
        const auto made = co_await as_result(rt.connect(b.endpoint(test::sim_port)));
        why = made.failure().to_string();
      },
      test::open_network);
  w.run();
  CHECK_THAT(why, Catch::Contains("refused"));
}
