#include "queue/spin_window.hpp"

#include <catch2/catch.hpp>

#include <chrono>

using namespace cordma;
using namespace std::chrono_literals;

namespace {

/// Looks in vain, a microsecond apart, then sleeps; something comes `after` the look began.
class watch {
 public:
  explicit watch(duration max) : window_{max} {}

  /// Gives how long the watch looked.
  duration wait(duration after) {
    duration spun{0};
    while (spun < after && window_.should_spin(now_ + spun)) spun += 1us;
    now_ += after;
    if (!window_.found()) window_.woke(now_);
    return spun;
  }

 private:
  spin_window window_;
  time_point now_{1h};
};

}  // namespace

TEST_CASE("what comes while it is looked for is found without a sleep", "[queue][E8]") {
  watch w{160us};
  for (int n = 0; n < 3; ++n) {
    CHECK(w.wait(1us) == 1us);
    CHECK(w.wait(159us) == 159us);
  }
}

TEST_CASE("after a sleep longer than the longest look there is no look", "[queue][E8]") {
  watch w{160us};
  CHECK(w.wait(1s) == 160us);
  for (int n = 0; n < 3; ++n) CHECK(w.wait(160us) == 0us);
}

TEST_CASE("a sleep that was too short makes the next look longer, up to the longest",
          "[queue][E8]") {
  watch w{160us};
  w.wait(1s);
  CHECK(w.wait(100us) == 0us);
  CHECK(w.wait(100us) == 10us);
  CHECK(w.wait(100us) == 20us);
  CHECK(w.wait(100us) == 40us);
  CHECK(w.wait(100us) == 80us);
  CHECK(w.wait(100us) == 100us);
  CHECK(w.wait(300us) == 160us);
  CHECK(w.wait(100us) == 0us);
}

TEST_CASE("with a longest look of nothing it always sleeps", "[queue][E8]") {
  watch w{0us};
  CHECK(w.wait(1s) == 0us);
  CHECK(w.wait(1us) == 0us);
  CHECK(w.wait(1us) == 0us);
}
