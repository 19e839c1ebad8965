#include <cordma/detail/io/fd_watch.hpp>

#include <cordma/base/unique_fd.hpp>
#include <cordma/coro/event.hpp>
#include <cordma/coro/when_all.hpp>
#include <cordma/coro/with_timeout.hpp>
#include <cordma/io/executor.hpp>

#include "support/foreign_task.hpp"
#include "wires.hpp"

#include <catch2/catch.hpp>

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <random>

using namespace cordma;
using namespace cordma::test;
using namespace std::chrono_literals;

TEST_CASE("a watch fires when it begins if ready, and then at changes alone", "[io]") {
  executor exec;
  wires w;
  w.say();
  counting_watch watch{exec, w.near.get()};
  settle(exec);
  CHECK(watch.fired_count == 1);
  settle(exec);
  CHECK(watch.fired_count == 1);  // Unread, but nothing new.
  w.say();
  settle(exec);
  CHECK(watch.fired_count == 2);
  CHECK(w.read_all() == 2);
  settle(exec);
  CHECK(watch.fired_count == 2);
  w.far.reset();
  settle(exec);
  CHECK(watch.fired_count >= 3);
  CHECK(watch.is_watching());
}

TEST_CASE("a destroyed watch fires no more, even for what came before", "[io]") {
  executor exec;
  wires w;
  {
    counting_watch watch{exec, w.near.get()};
    settle(exec);
    w.say();
  }
  {
    counting_watch never_told{exec, w.near.get()};
  }
  settle(exec);
  counting_watch again{exec, w.near.get()};
  settle(exec);
  CHECK(again.fired_count == 1);
}

TEST_CASE("a watch may destroy itself and its neighbours when it fires", "[io]") {
  executor exec;
  wires w;
  struct killer : fd_watch {
    killer(executor& e, int fd, std::array<std::unique_ptr<killer>, 3>& all)
        : fd_watch{e, fd, fd_events::readable, &kill}, all_{all} {}
    static void kill(fd_watch& self) noexcept {
      auto& all = static_cast<killer&>(self).all_;
      for (auto& each : all) each.reset();
    }
    std::array<std::unique_ptr<killer>, 3>& all_;
  };
  std::array<std::unique_ptr<killer>, 3> all;
  for (auto& each : all) each = std::make_unique<killer>(exec, w.near.get(), all);
  w.say();
  settle(exec);
  CHECK(all[0] == nullptr);
}

TEST_CASE("readable ends with the first byte, writable while there is room", "[io]") {
  executor exec;
  wires w;
  exec.run(writable(exec, w.near.get()));
  exec.post([&] { w.say(); });
  exec.run(readable(exec, w.near.get()));
  CHECK(w.read_all() == 1);
}

TEST_CASE("readable works in a coroutine of a foreign type", "[io]") {
  executor exec;
  wires w;
  event done;
  const auto body = [](executor& e, int fd, event& d) -> support::foreign_task {
    co_await readable(e, fd);
    d.set();
  };
  const auto frame = body(exec, w.near.get(), done);
  w.say();
  exec.run(done.wait());
  CHECK(w.read_all() == 1);
}

TEST_CASE("waiting for a descriptor can be stopped, before and while it waits", "[io]") {
  executor exec;
  wires w;
  const auto outcome = exec.run(as_result(with_timeout(readable(exec, w.near.get()), 1ms)));
  REQUIRE(outcome.has_failure());
  CHECK(outcome.failure().code == errc::timed_out);

  const auto first = exec.run(when_any(readable(exec, w.near.get()), exec.sleep_for(1ms)));
  CHECK(first.index() == 1);

  scope s{exec};
  s.request_stop();
  bool cancelled_at_once = false;
  const auto body = [](executor& e, int fd, bool& seen) -> task<> {
    seen = (co_await as_result(readable(e, fd))).is_cancelled();
  };
  s.spawn(body(exec, w.near.get(), cancelled_at_once));
  exec.run(s.join());
  CHECK(cancelled_at_once);
}

TEST_CASE("watches and waiting frames may go at any point", "[io][C1]") {
  std::mt19937 random{20240607};
  executor exec{{.ring_entries = 8}};
  std::array<wires, 4> pairs;
  std::vector<std::unique_ptr<counting_watch>> watches;
  std::vector<std::unique_ptr<task<>>> frames;
  detail::end_flag nobody_asks;
  const auto waiting = [](executor& e, int fd) -> task<> {
    for (;;) co_await readable(e, fd);
  };
  for (int step = 0; step < 20'000; ++step) {
    const wires& w = pairs[random() % pairs.size()];
    switch (random() % 7) {
      case 0: watches.push_back(std::make_unique<counting_watch>(exec, w.near.get())); break;
      case 1:
        if (!watches.empty()) watches.erase(watches.begin() + long(random() % watches.size()));
        break;
      case 2:
        frames.push_back(std::make_unique<task<>>(waiting(exec, w.near.get())));
        frames.back()->start(nobody_asks, environment{&exec, {}});
        break;
      case 3:
        if (!frames.empty()) frames.erase(frames.begin() + long(random() % frames.size()));
        break;
      case 4: w.say(); break;
      case 5: w.read_all(); break;
      default: exec.run(exec.sleep_for(0us)); break;
    }
  }
  watches.clear();
  frames.clear();
  for (const wires& w : pairs) w.read_all();
  settle(exec);
  // The executor is as good as new: a wait that nothing ends is ended by its timeout alone.
  const auto outcome = exec.run(as_result(with_timeout(readable(exec, pairs[0].near.get()), 1ms)));
  CHECK(outcome.failure().code == errc::timed_out);
}
