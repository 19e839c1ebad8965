#include "open_network.hpp"

#include <cordma/connection/listener.hpp>
#include <cordma/coro/scope.hpp>
#include <cordma/coro/sleep.hpp>
#include <cordma/sim.hpp>

#include <catch2/catch.hpp>

#include <string>

using namespace cordma;
using namespace std::chrono_literals;

namespace {

/// Adds its name to a log at its end.
struct tracer {
  ~tracer() { log += name; }
  std::string& log;
  char name;
};

/// Is registered at a stop token, and says so when it is called.
struct stop_watch : stop_callback {
  explicit stop_watch(std::string& l) noexcept
      : stop_callback{[](stop_callback& self) noexcept {
          static_cast<stop_watch&>(self).log += "stopped";
        }},
        log{l} {}
  std::string& log;
};

/// A program whose tasks have tasks of their own: one waits for a stop, and others serve.
struct branching_server {
  std::string log;
  unsigned served = 0;

  task<> wait(char name) {
    const tracer here{log, name};
    const environment env = co_await current_environment();
    stop_watch watch{log};
    env.stop.register_callback(watch);
    co_await sleep_for(1h);
  }
  task<> wait_with_children() {
    const tracer here{log, 'c'};
    co_await with_scope([this](scope& children) -> task<> {
      children.spawn(wait('d'));
      children.spawn(wait('e'));
      co_return;
    });
  }
  task<> talk(connection conn) {
    const tracer here{log, 'h'};
    ++served;
    local_mr memory = conn.memory().allocate_zeroed(64);
    co_await with_scope([&](scope& children) -> task<> {
      children.spawn(conn.recv(memory.slice()));
      co_await wait('i');
    });
  }
  task<> live(runtime& rt, const sim::host& on) {
    const tracer here{log, 'p'};
    listener listening = rt.listen(on.endpoint(test::sim_port));
    co_await with_scope([&](scope& children) -> task<> {
      children.spawn(wait_with_children());
      children.spawn(serve(listening, [this](connection conn) { return talk(std::move(conn)); }));
      co_return;
    });
  }
};

}  // namespace

TEST_CASE("a program that is killed ends with its tasks, and theirs, the newest first", "[sim]") {
  sim::world w{1};
  sim::host& a = w.add_host("a");
  sim::host& b = w.add_host("b");
  branching_server program;
  unsigned ended = 0;
  const auto live = [&](runtime& rt) { return program.live(rt, b); };
  b.start(live, test::open_network);
  a.start([&](runtime& rt) -> task<> {
    for (unsigned n = 0; n < 2; ++n) {
      co_await sleep_for(100ms);
      connection conn = co_await rt.connect(b.endpoint(test::sim_port));
      local_mr memory = rt.memory().allocate_zeroed(64);
      const auto received = co_await as_result(conn.recv(memory.slice()));
      ended += received.has_failure() ? 1 : 0;
    }
  });
  for (unsigned n = 1; n <= 2; ++n) {
    w.after(n * 10s, [&, n] {
      CHECK(program.served == n);
      CHECK(program.log.empty());
      b.kill();
      CHECK(program.log == "ihedcp");
      program.log.clear();
      if (n == 1) b.start(live, test::open_network);
    });
  }
  w.run();
  CHECK(ended == 2);
}
