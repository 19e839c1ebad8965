#include "node/service.hpp"

#include "node/doubles.hpp"
#include "node/node.hpp"
#include "queue/completion_queue.hpp"

#include <sys/eventfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include <array>
#include <atomic>
#include <memory>
#include <semaphore>
#include <thread>

using namespace softverbs;
using namespace std::chrono_literals;

namespace {

/// Counts its runs: those with input, and those that were due.
class counting_service : public node_service {
 public:
  ~counting_service() { ::close(fd_); }
  [[nodiscard]] int descriptor() const noexcept override { return fd_; }
  [[nodiscard]] time deadline() const noexcept override {
    return time{time::duration{deadline_.load()}};
  }
  void run(time now) noexcept override {
    eventfd_t count = 0;
    const bool is_ready = ::eventfd_read(fd_, &count) == 0;
    if (on_run) on_run();
    test::upcalls().locked([&] {
      if (is_ready) ++ready;
      if (deadline() <= now) {
        ++due;
        deadline_.store(time::max().time_since_epoch().count());
      }
      ran_by = std::this_thread::get_id();
    });
    test::upcalls().changed.notify_all();
  }
  void abandon() noexcept override { was_abandoned = true; }

  void ring() const { REQUIRE(::eventfd_write(fd_, 1) == 0); }
  void be_due(time when) { deadline_.store(when.time_since_epoch().count()); }
  bool comes_to(unsigned readies, unsigned dues) {
    return test::upcalls().wait([&] { return ready == readies && due == dues; });
  }

  std::function<void()> on_run;
  unsigned ready = 0;  // Under the mutex of the upcalls, with `due` and `ran_by`.
  unsigned due = 0;
  std::thread::id ran_by;
  bool was_abandoned = false;

 private:
  int fd_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  std::atomic<time::rep> deadline_{time::max().time_since_epoch().count()};
};

/// A service that the node of this process serves.
struct served final : counting_service {
  explicit served(node& to) : local_node{to} { REQUIRE(local_node.attach(*this)); }
  ~served() { local_node.detach(*this); }
  node& local_node;
};

}  // namespace

TEST_CASE("the engine runs a service that has input or is due", "[node]") {
  test::node_user user;
  served one{user.local_node};
  one.ring();
  CHECK(one.comes_to(1, 0));
  CHECK(test::upcalls().locked([&] { return one.ran_by != std::this_thread::get_id(); }));
  const auto when = clock::now() + 20ms;
  one.be_due(when);
  user.local_node.wake_service();
  CHECK(one.comes_to(1, 1));
  CHECK(clock::now() >= when);
  one.ring();
  CHECK(one.comes_to(2, 1));
}

TEST_CASE("a service that is due when it comes is run", "[node]") {
  test::node_user user;
  counting_service one;
  one.be_due(clock::now());
  REQUIRE(user.local_node.attach(one));
  CHECK(one.comes_to(0, 1));
  user.local_node.detach(one);
}

TEST_CASE("a node serves a few services, each by itself", "[node]") {
  test::node_user user;
  {
    std::array<std::unique_ptr<served>, services_max> all;
    for (auto& one : all) one = std::make_unique<served>(user.local_node);
    counting_service another;
    CHECK_FALSE(user.local_node.attach(another));
    all[1].reset();
    CHECK(user.local_node.attach(another));
    another.ring();
    CHECK(another.comes_to(1, 0));
    for (const auto& one : all)
      if (one) CHECK(test::upcalls().locked([&] { return one->ready == 0; }));
    user.local_node.detach(another);
  }
  served last{user.local_node};
  last.ring();
  CHECK(last.comes_to(1, 0));
}

TEST_CASE("a service is served while queue pairs keep the engine busy", "[node]") {
  std::uint32_t endless = 0;
  test::node_user user;
  served one{user.local_node};
  endless = user.local_node.allocate_qpn();
  test::upcalls().locked(
      [&] { test::upcalls().on_run = [&](std::uint32_t qpn) { user.local_node.kick(qpn); }; });
  user.local_node.kick(endless);
  one.ring();
  CHECK(one.comes_to(1, 0));
  one.be_due(clock::now());
  CHECK(one.comes_to(1, 1));
  test::upcalls().locked([] { test::upcalls().on_run = nullptr; });
  user.local_node.free_qpn(endless);
}

TEST_CASE("the engine serves a service while a thread polls", "[node]") {
  test::node_user user;
  served one{user.local_node};
  const auto cq = std::make_unique<completion_queue>();
  const std::uint32_t endless = user.local_node.allocate_qpn();
  test::upcalls().locked([&] {
    test::upcalls().on_run = [&local_node = user.local_node, endless](std::uint32_t which) {
      if (which == endless) local_node.kick(endless);
    };
  });
  user.local_node.kick(endless);
  const auto polls_until = [&](auto what) {
    const auto patience = clock::now() + 60s;
    while (!test::upcalls().locked(what) && clock::now() < patience)
      user.local_node.on_empty_poll(*cq);
    CHECK(test::upcalls().locked(what));
  };
  for (unsigned n = 0; n < 2 * busy_polls; ++n) user.local_node.on_empty_poll(*cq);
  for (unsigned n = 1; n <= 20; ++n) {
    one.ring();
    polls_until([&] { return one.ready == n; });
    one.be_due(clock::now());
    polls_until([&] { return one.due == n; });
    CHECK(test::upcalls().locked([&] { return one.ran_by != std::this_thread::get_id(); }));
  }
  test::upcalls().locked([] { test::upcalls().on_run = nullptr; });
  user.local_node.free_qpn(endless);
}

TEST_CASE("detaching waits until the engine has left the service", "[node]") {
  test::node_user user;
  for (int round = 0; round < 200; ++round) {
    counting_service one;
    std::binary_semaphore entered{0};
    std::binary_semaphore leaves{0};
    std::atomic<bool> is_inside{false};
    one.on_run = [&] {
      is_inside = true;
      entered.release();
      leaves.acquire();
      std::this_thread::yield();
      is_inside = false;
    };
    REQUIRE(user.local_node.attach(one));
    one.ring();
    entered.acquire();
    std::thread other{[&] { leaves.release(); }};
    user.local_node.detach(one);
    CHECK_FALSE(is_inside.load());
    other.join();
  }
}

TEST_CASE("a forked child leaves the services to its parent, and may have its own", "[node]") {
  test::node_user user;
  std::counting_semaphore<2> entered{0};
  std::counting_semaphore<2> leaves{0};
  served one{user.local_node};
  one.on_run = [&] {
    entered.release();
    leaves.acquire();
  };
  one.ring();
  entered.acquire();  // The engine is in the service, and is not there in the child.
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    constexpr unsigned seconds_max = 60;
    ::alarm(seconds_max);
    int failed = 0;
    if (!one.was_abandoned || user.local_node.attach(one)) failed |= 1;
    user.local_node.detach(one);
    {
      test::node_user own;
      served another{own.local_node};
      another.ring();
      if (!another.comes_to(1, 0) || another.was_abandoned) failed |= 2;
    }
    ::_exit(failed);
  }
  int status = -1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  CHECK_FALSE(one.was_abandoned);
  leaves.release(2);
  CHECK(one.comes_to(1, 0));
  one.ring();
  CHECK(one.comes_to(2, 0));
}
