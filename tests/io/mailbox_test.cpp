#include <cordma/detail/io/mailbox.hpp>

#include <cordma/coro/event.hpp>
#include <cordma/io/executor.hpp>

#include <catch2/catch.hpp>
#include <memory>
#include <thread>
#include <vector>

using namespace cordma;
using namespace std::chrono_literals;

TEST_CASE("a mailbox asks for a wake-up once for each sleep, and not while its owner is awake",
          "[io]") {
  detail::mailbox box;
  int ran = 0;
  CHECK_FALSE(box.leave([&] { ++ran; }));
  CHECK_FALSE(box.fall_asleep());
  CHECK(box.run_all() == 1);
  REQUIRE(box.fall_asleep());
  CHECK(box.leave([&] { ++ran; }));
  CHECK_FALSE(box.leave([&] { ++ran; }));
  CHECK(box.run_all() == 2);
  REQUIRE(box.fall_asleep());
  CHECK(box.run_all() == 0);  // Woken by something else.
  CHECK_FALSE(box.leave([&] { ++ran; }));
  CHECK(box.run_all() == 1);
  CHECK(ran == 4);
}

TEST_CASE("what is posted runs in order, and what never runs is destroyed", "[io]") {
  std::vector<int> order;
  const auto witness = std::make_shared<int>(0);
  {
    executor exec;
    for (int i = 0; i < 3; ++i) exec.post([&order, i] { order.push_back(i); });
    exec.run(exec.sleep_for(1us));
    CHECK(order == std::vector{0, 1, 2});
    exec.post([witness] { ++*witness; });
    CHECK(witness.use_count() == 2);
  }
  CHECK(witness.use_count() == 1);
  CHECK(*witness == 0);
}

TEST_CASE("calls posted by four threads all run once and wake a sleeping executor", "[io]") {
  constexpr int threads = 4;
  constexpr int each = 25'000;
  executor exec;
  event all;
  std::vector<int> last(threads, -1);
  int count = 0;
  bool in_order = true;
  std::vector<std::thread> posters;
  for (int t = 0; t < threads; ++t) {
    posters.emplace_back([&, t] {
      for (int i = 0; i < each; ++i) {
        exec.post([&, t, i] {
          in_order &= std::exchange(last[std::size_t(t)], i) == i - 1;
          if (++count == threads * each) all.set();
        });
        if (i % 64 == 0) std::this_thread::yield();  // Lets the executor fall asleep now and then.
      }
    });
  }
  exec.run(all.wait());
  for (std::thread& poster : posters) poster.join();
  CHECK(count == threads * each);
  CHECK(in_order);
  CHECK(exec.counters().posted == threads * each);
}

TEST_CASE("each of ten thousand single posts finds a sleeping executor and wakes it", "[io][E3]") {
  executor exec;
  event all;
  std::atomic<int> answered = 0;
  constexpr int count = 10'000;
  std::thread poster{[&] {
    for (int i = 0; i < count; ++i) {
      exec.post([&] { answered.fetch_add(1, std::memory_order_release); });
      while (answered.load(std::memory_order_acquire) <= i) std::this_thread::yield();
    }
    exec.post([&] { all.set(); });
  }};
  exec.run(all.wait());
  poster.join();
  CHECK(answered == count);
}
