#include "explorations.hpp"

#include <cordma/detail/io/mailbox.hpp>

#include <array>

namespace model {
namespace {

/// An executor's thread and threads that post to it, as executor::post and executor::wait do.
template <unsigned Posters, unsigned Calls>
struct owner_and_posters : scenario {
  cordma::detail::mailbox box;
  event wake;
  std::array<data<unsigned>, Posters * Calls> written;
  std::array<unsigned, Posters> ran{};
  unsigned count = 0;

  owner_and_posters() {
    name(box, "mailbox", {"asleep_.next_", "newest_"});
    name(wake, "wake");
    name(written, "written");
  }
  void run(unsigned thread) override {
    if (thread > 0) return post(thread - 1);
    while (count < Posters * Calls)
      if (box.run_all() == 0 && box.fall_asleep()) wake.wait();
  }
  void post(unsigned poster) {
    for (unsigned n = 0; n < Calls; ++n) {
      data<unsigned>& what = written[poster * Calls + n];
      what = n;
      const bool sleeps = box.leave([this, poster, n, &what] {
        check(what == n, "a call sees what its poster wrote");
        check(ran[poster]++ == n, "a poster's calls run in order");
        ++count;
      });
      if (sleeps) wake.wake();
    }
  }
  void end() override { check(count == Posters * Calls, "each call runs once"); }
};

/// An owner that ends while there are calls.
struct owner_that_leaves : scenario {
  cordma::detail::mailbox box;
  unsigned posted = 0;
  unsigned ran = 0;

  owner_that_leaves() { name(box, "mailbox", {"asleep_.next_", "newest_"}); }
  void run(unsigned thread) override {
    if (thread == 0) {
      ran = unsigned(box.run_all());
      return;
    }
    for (; posted < 3; ++posted) static_cast<void>(box.leave([] {}));
  }
  void end() override { check(ran <= posted, "no call runs twice"); }
};

}  // namespace

std::vector<exploration> explorations_of_mailbox() {
  return {
      {"mailbox, owner and poster", {.threads = 2}, 1000, explore<owner_and_posters<1, 2>>},
      {"mailbox, owner that leaves", {.threads = 2}, 50, explore<owner_that_leaves>},
      {"mailbox, owner and three posters",
       {.threads = 4, .random_runs = 1},
       0,
       explore<owner_and_posters<3, 2>>},
  };
}

}  // namespace model
