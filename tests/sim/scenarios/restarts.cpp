#include "scenarios.hpp"
#include "support.hpp"

#include <cordma/rpc/client.hpp>
#include <cordma/rpc/server.hpp>

namespace cordma::test {
namespace {

using namespace std::chrono_literals;

constexpr duration trouble_time = 3s;
/// A loss shows within 5 s at most: by retries, heartbeat, or a call's deadline. What had begun
/// before the end of all trouble then begins again, which may take as long.
constexpr duration calm_time = 25s;

struct increased : rpc::method<"restarts.increased", std::uint64_t, std::uint64_t> {};

/// A server and clients that count with it, each host in trouble for a while.
struct troubled : cast {
  using cast::cast;
  static constexpr std::uint64_t goal = 20;
  std::vector<std::uint64_t> reached = std::vector<std::uint64_t>(size());

  task<> count(runtime& rt, std::uint64_t& number) {
    rpc::client client{co_await rt.connect(at(0), {.connect_timeout = 2s})};
    while (number < goal) {
      const std::uint64_t next = co_await client.call<increased>(number, {.timeout = 2s});
      require(next == number + 1, "a wrong sum");
      number = next;
      co_await sleep_for(moment(100ms));
    }
    co_await client.close();
  }

  task<> serve(runtime& rt) {
    rpc::server server;
    server.handle<increased>([](std::uint64_t n) -> task<std::uint64_t> { co_return n + 1; });
    listener listening = rt.listen(at(0));
    co_await when_any(server.serve(listening), until([&] { return !are_running_from(1); }));
  }

  task<> live(runtime& rt, unsigned self) {
    const patience long_one{.attempts = 100, .delay_max = 200ms};
    const bool ended = co_await persist(
        [&] { return self == 0 ? serve(rt) : count(rt, reached[self]); }, long_one);
    require(ended, "a program gave up");
  }
};

/// Troubles one host again and again, until the time is over or its program has ended.
void trouble(const std::shared_ptr<troubled>& all, unsigned number, time_point until) {
  sim::world& w = all->w;
  const duration pause = all->moment(800ms), lasts = all->moment(800ms);
  if (w.now() + pause + lasts > until) return;
  w.after(pause, [all, number, until, lasts, &w] {
    sim::host& host = *all->hosts[number];
    if (!host.is_running()) return;
    sim::host& other = *all->hosts[(number + 1) % all->size()];
    const auto kind = w.random(4);
    switch (kind) {
      case 0:
        ++all->to_be_started;
        host.kill();
        break;
      case 1:
        ++all->to_be_started;
        host.lose_power();
        break;
      case 2: host.freeze(); break;
      case 3: w.partition(host, other); break;
      default: w.cut(host, other);
    }
    w.after(lasts, [all, number, until, kind, &w, &host] {
      if (kind < 2) {
        --all->to_be_started;
        start(all, number);
      } else if (kind == 2) {
        host.thaw();
      } else {
        w.heal();
      }
      trouble(all, number, until);
    });
  });
}

}  // namespace

void play_restarts(sim::world& w) {
  const auto all = start_all<troubled>(w, 3 + unsigned(w.random(1)));
  for (unsigned n = 0; n < all->size(); ++n) trouble(all, n, w.now() + trouble_time);
  // A world ends when no host runs, and all others may be down at once.
  w.add_host("watch").start([](runtime&) -> task<> { co_await sleep_for(trouble_time); });
  w.run(trouble_time + calm_time);
  for (unsigned n = 1; n < all->size(); ++n)
    all->require(all->reached[n] == troubled::goal, "a client did not reach its goal");
}

}  // namespace cordma::test
