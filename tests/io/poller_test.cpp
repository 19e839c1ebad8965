#include <cordma/detail/io/poller.hpp>

#include <cordma/base/unique_fd.hpp>
#include <cordma/coro/event.hpp>
#include <cordma/detail/io/fd_watch.hpp>
#include <cordma/io/executor.hpp>

#include <sys/eventfd.h>
#include <catch2/catch.hpp>
#include <memory>
#include <thread>

using namespace cordma;
using namespace std::chrono_literals;

namespace {

class spinner final : public poller {
 public:
  std::size_t poll() noexcept override {
    ++polls;
    return 0;
  }
  bool prepare_wait() noexcept override { return false; }
  std::size_t polls = 0;
};

class self_destroyer final : public poller {
 public:
  explicit self_destroyer(std::unique_ptr<self_destroyer>& self) : self_{self} {}
  std::size_t poll() noexcept override {
    self_.reset();
    return 1;
  }
  bool prepare_wait() noexcept override { return true; }

 private:
  std::unique_ptr<self_destroyer>& self_;
};

/// An event comes between its last look and its arming, a given number of times.
class racer final : public poller {
 public:
  racer(event& e, int races) : event_{e}, races_{races} {}
  std::size_t poll() noexcept override {
    if (!std::exchange(came_, false)) return 0;
    if (--races_ == 0) event_.set();
    return 1;
  }
  bool prepare_wait() noexcept override { return !(came_ = true); }

 private:
  event& event_;
  int races_;
  bool came_ = false;
};

/// A device whose requests have ended by the next look.
class quick_device final : public poller {
 public:
  std::size_t poll() noexcept override {
    if (!std::exchange(has_request, false)) return 0;
    ended.set();
    return 1;
  }
  bool prepare_wait() noexcept override {
    if (has_request) ++arms_in_vain;
    return !has_request;
  }
  bool has_request = false;
  event ended;
  int arms_in_vain = 0;
};

}  // namespace

TEST_CASE("a busy executor sees timers, descriptors and posts, and never blocks", "[io]") {
  executor exec;
  spinner busy;
  exec.add(busy);
  exec.run(exec.sleep_for(2ms));

  unique_fd fd{::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)};
  std::thread other{[&] { exec.post([&] { ::eventfd_write(fd.get(), 1); }); }};
  exec.run(readable(exec, fd.get()));
  other.join();

  CHECK(exec.counters().waits == 0);
  CHECK(busy.polls > 0);
}

TEST_CASE("an executor that yields lets others run while a poller spins, and only then", "[io]") {
  executor exec;
  exec.yield_while_spinning(true);
  exec.run(exec.sleep_for(1ms));
  CHECK(exec.counters().yields == 0);

  spinner busy;
  exec.add(busy);
  exec.run(exec.sleep_for(1ms));
  const std::uint64_t yields = exec.counters().yields;
  CHECK(yields > 0);
  CHECK(busy.polls >= 16 * yields);

  exec.yield_while_spinning(false);
  exec.run(exec.sleep_for(1ms));
  CHECK(exec.counters().yields == yields);
}

TEST_CASE("a poller that spins is asked several times a turn, but not ahead of what is ready",
          "[io]") {
  executor exec;
  spinner busy;
  exec.add(busy);
  exec.run(exec.sleep_for(1ms));
  CHECK(busy.polls > 4 * exec.counters().iterations);

  // Each turn has a child to start.
  const std::size_t polls = busy.polls;
  const std::uint64_t iterations = exec.counters().iterations;
  exec.run([](cordma::executor& executor) -> task<> {
    scope children{executor};
    for (int i = 0; i < 100; ++i) {
      children.spawn([]() -> task<> { co_return; }());
      co_await children.join();
    }
  }(exec));
  CHECK(busy.polls - polls == exec.counters().iterations - iterations);
}

TEST_CASE("what comes while a poller arms is seen without a wait", "[io][E1]") {
  executor exec;
  event all;
  racer races{all, 1000};
  exec.add(races);
  exec.run(all.wait());
  CHECK(exec.counters().waits == 0);
}

TEST_CASE("what a task that has gone on asks for is looked for before a poller arms", "[io][E1]") {
  executor exec;
  quick_device device;
  exec.add(device);
  exec.run([](cordma::executor& executor, quick_device& asked) -> task<> {
    co_await executor.sleep_for(1us);  // Goes on in a turn in which nothing was found.
    asked.has_request = true;
    co_await asked.ended.wait();
  }(exec, device));
  CHECK(device.arms_in_vain == 0);
}

TEST_CASE("a poller may be destroyed in its own poll, and the others are still asked", "[io]") {
  executor exec;
  spinner first, last;
  std::unique_ptr<self_destroyer> middle;
  middle = std::make_unique<self_destroyer>(middle);
  exec.add(first);
  exec.add(*middle);
  exec.add(last);
  exec.run(exec.sleep_for(1us));
  CHECK(middle == nullptr);
  CHECK(first.polls == last.polls);
}
