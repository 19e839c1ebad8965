#include <cordma/runtime/runtime.hpp>

#include "support/aborts.hpp"
#include "support/connected_pair.hpp"
#include "support/thread_sanitizer.hpp"

#include <cordma/coro/when_all.hpp>

#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <thread>
#include <vector>

#if !CORDMA_TEST_THREAD_SANITIZER

using namespace cordma;
using test::connected_pair;

namespace {

constexpr unsigned child_seconds_max = 60;

/// 0 when a child with a runtime of its own sent itself a message.
int speak_in_child() {
  ::alarm(child_seconds_max);  // A hang is a failure, too.
  try {
    connected_pair pair;
    local_mr from = pair.rt.memory().allocate_zeroed(64);
    local_mr to = pair.rt.memory().allocate_zeroed(64);
    const auto speak = [](connected_pair& p, local_mr& out, local_mr& in) -> task<> {
      co_await when_all(p.client.send(out.slice(0, 64)), p.server.recv(in.slice(0, 64)));
    };
    pair.rt.run(speak(pair, from, to));
    return 0;
  } catch (const std::exception& e) {
    ::dprintf(2, "child of fork: %s\n", e.what());
    return 1;
  }
}

/// Threads that hold the locks of the whole process as often as they can.
class busy_threads {
 public:
  explicit busy_threads(mr_allocator& memory) {
    for (int n = 0; n < 3; ++n) threads_.emplace_back([this, &memory] { allocate(memory); });
    threads_.emplace_back([this] {
      while (!over_.load()) static_cast<void>(verbs::list_devices());
    });
  }
  ~busy_threads() {
    over_.store(true);
    for (std::thread& t : threads_) t.join();
  }

 private:
  void allocate(mr_allocator& memory) const {
    constexpr std::size_t more_than_a_thread_keeps = 512;
    std::vector<local_mr> held;
    held.reserve(more_than_a_thread_keeps);
    while (!over_.load()) {
      while (held.size() < more_than_a_thread_keeps)
        held.push_back(memory.allocate_uninitialized(64));
      held.clear();
      // A registration's block has no cache of its own.
      alignas(64) std::byte own[64];
      const local_mr registered = memory.register_external(own);
    }
  }

  std::atomic<bool> over_{false};
  std::vector<std::thread> threads_;
};

}  // namespace

TEST_CASE("a child of fork makes a runtime of its own, whatever its parent's threads were at",
          "[runtime][device][fork]") {
  runtime rt{test::on_test_device()};
  const busy_threads busy{rt.memory()};
  constexpr int forks = 30;
  for (int n = 0; n < forks; ++n) {
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) ::_exit(speak_in_child());
    int status = -1;
    REQUIRE(::waitpid(child, &status, 0) == child);
    REQUIRE(status == 0);
  }
}

TEST_CASE("what a child of fork does with its parent's runtime ends it with a word about fork",
          "[runtime][device][fork]") {
  auto rt = std::make_unique<runtime>(test::on_test_device());
  const auto nothing = []() -> task<> { co_return; };
  rt->run(nothing());
  support::death end{};
  SECTION("run") {
    end = support::run_in_child([&] { rt->run(nothing()); });
  }
  SECTION("a coroutine that forked goes on") {
    const auto fork_inside = []() -> task<> {
      const pid_t child = ::fork();
      if (child == 0) co_await sleep_for(std::chrono::milliseconds{1});
      int status = 0;
      if (child > 0 && ::waitpid(child, &status, 0) == child && WIFSIGNALED(status)) std::abort();
    };
    end = support::run_in_child([&] {
      runtime own{test::on_test_device()};
      own.run(fork_inside());
    });
  }
  SECTION("its allocator's lock") {
    end = support::run_in_child([&] { static_cast<void>(rt->memory().statistics()); });
  }
  SECTION("its destructor") {
    end = support::run_in_child([&] { rt.reset(); });
  }
  CHECK(end.aborted);
  CHECK(end.text.find("fork") != std::string::npos);
}

#endif
