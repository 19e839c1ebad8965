#include "queue/adaptive_mutex.hpp"

#include <catch2/catch.hpp>

#include <mutex>
#include <thread>

using softverbs::adaptive_mutex;

TEST_CASE("an adaptive mutex that is held is not taken by another thread", "[queue]") {
  adaptive_mutex mutex;
  const std::lock_guard held{mutex};
  bool taken = true;
  std::thread{[&] { taken = mutex.try_lock(); }}.join();
  CHECK_FALSE(taken);
}

TEST_CASE("two threads that want an adaptive mutex time and again have it one at a time",
          "[queue]") {
  constexpr unsigned each = 100'000;
  adaptive_mutex mutex;
  unsigned count = 0;
  const auto add = [&] {
    for (unsigned n = 0; n < each; ++n) {
      const std::lock_guard held{mutex};
      ++count;
    }
  };
  std::thread other{add};
  add();
  other.join();
  CHECK(count == 2 * each);
}
