#include <cordma/io/fd_watch.hpp>

#include <cordma/base/unique_fd.hpp>
#include <cordma/coro/event.hpp>
#include <cordma/coro/when_any.hpp>
#include <cordma/coro/with_timeout.hpp>
#include <cordma/io/executor.hpp>

#include "foreign.hpp"

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

namespace {

struct wires {
  unique_fd near, far;
  wires() {
    int fds[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds) == 0);
    near.reset(fds[0]);
    far.reset(fds[1]);
  }
  void say() const { REQUIRE(::write(far.get(), "x", 1) == 1); }
  std::size_t read_all() const {
    std::array<char, 64> bytes;
    std::size_t total = 0;
    for (ssize_t n; (n = ::read(near.get(), bytes.data(), bytes.size())) > 0;) {
      total += std::size_t(n);
    }
    return total;
  }
};

struct counting_watch : fd_watch {
  counting_watch(executor& exec, int fd) : fd_watch{exec, fd, fd_events::readable, &count} {}
  static void count(fd_watch& self) noexcept { ++static_cast<counting_watch&>(self).fired_count; }
  int fired_count = 0;
};

/// Lets the executor see all that is there.
void settle(executor& exec) { exec.run(exec.sleep_for(100us)); }

}  // namespace

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

TEST_CASE("a closed descriptor is closed at once when its watch has gone", "[io]") {
  executor exec;
  wires w;
  {
    counting_watch watch{exec, w.near.get()};
    settle(exec);
  }
  w.near.reset();
  // The executor does not run meanwhile.
  char byte;
  CHECK(::read(w.far.get(), &byte, 1) == 0);
}

TEST_CASE("a watch outlives its executor without reaching for it", "[io]") {
  wires w;
  std::optional<counting_watch> watch;
  {
    executor exec;
    watch.emplace(exec, w.near.get());
    settle(exec);
  }
  CHECK_FALSE(watch->is_watching());
}

TEST_CASE("a bad descriptor fires once, and its watch says that it watches no longer", "[io]") {
  executor exec;
  counting_watch bad{exec, 999'999};
  settle(exec);
  CHECK(bad.fired_count == 1);
  CHECK_FALSE(bad.is_watching());
  exec.run(readable(exec, 999'999));
  const unique_fd file{::open("/proc/self/exe", O_RDONLY | O_CLOEXEC)};
  exec.run(readable(exec, file.get()));
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
  const auto body = [](executor& e, int fd, event& d) -> foreign {
    co_await readable(e, fd);
    d.set();
  };
  body(exec, w.near.get(), done);
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

TEST_CASE("watches beyond the size of the ring are all told to the kernel", "[io]") {
  executor exec{{.ring_entries = 4}};
  wires w;
  std::vector<std::unique_ptr<counting_watch>> many;
  for (int i = 0; i < 100; ++i) {
    many.push_back(std::make_unique<counting_watch>(exec, w.near.get()));
  }
  settle(exec);
  w.say();
  settle(exec);
  // Not exactly once: the completion queue overflowed, and the kernel had to be told again.
  CHECK(std::ranges::all_of(many, [](const auto& each) { return each->fired_count > 0; }));
  many.clear();
  w.say();
  settle(exec);
  exec.run(readable(exec, w.near.get()));
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
