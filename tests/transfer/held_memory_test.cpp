#include <cordma/detail/transfer/held_memory.hpp>

#include <cordma/detail/io/poller.hpp>

#include <catch2/catch.hpp>

#include <infiniband/verbs.h>

#include <array>
#include <cstddef>
#include <random>
#include <vector>

using cordma::held_memory;
using cordma::memory_block;

namespace {

/// Where tasks may look.
struct looking_home : cordma::scheduler {
  struct nothing final : cordma::poller {
    std::size_t poll() noexcept override { return 0; }
    bool prepare_wait() noexcept override { return true; }
  };
  /// As a turn of one task.
  template <class F>
  void turn(F f) {
    struct task : cordma::waiter {
      explicit task(F& g) noexcept : waiter{&run}, does{g} {}
      static std::coroutine_handle<> run(waiter& self) noexcept {
        static_cast<task&>(self).does();
        return std::noop_coroutine();
      }
      F& does;
    };
    task one{f};
    allow_looks(1, &polled);
    schedule(one);
    run_ready();
  }
  nothing polled;
};

/// Owned memory that notices its release.
struct watched_block {
  /// Of an allocator, if it knows its size.
  explicit watched_block(std::size_t size_bytes = 0) { block.begin(nullptr, size_bytes); }
  watched_block(const watched_block&) = delete;
  ~watched_block() {
    if (!given_up) give_up();
  }
  void give_up() {
    given_up = true;
    block.give_up();
  }
  bool released = false;
  bool given_up = false;
  memory_block& block = memory_block::adopt(
      nullptr, cordma::verbs::access::none,
      [](memory_block& b, void* context) noexcept {
        *static_cast<bool*>(context) = true;
        memory_block::recycle(b);
      },
      &released);
  std::uint32_t generation = block.generation();
};

/// What queues hold, on a scheduler whose only task may look.
struct holder_of_memory {
  [[nodiscard]] bool try_hold(const watched_block& mr) {
    return held.try_hold(mr.block, mr.generation, true);
  }
  void hold(const watched_block& mr) { held.hold(mr.block); }
  void let_go(const watched_block& mr) { held.let_go(mr.block); }
  looking_home home;
  held_memory held{nullptr, home};
};

}  // namespace

TEST_CASE("a queue holds the block that it works on once, until nobody needs it",
          "[transfer][M10]") {
  watched_block mr;
  holder_of_memory holder;
  REQUIRE(holder.try_hold(mr));
  REQUIRE(holder.try_hold(mr));
  holder.hold(mr);
  CHECK(mr.block.holders() == 2);
  holder.let_go(mr);
  holder.let_go(mr);
  CHECK(mr.block.holders() == 2);
  mr.give_up();
  CHECK_FALSE(mr.released);
  holder.let_go(mr);
  CHECK(mr.released);
}

TEST_CASE("memory that was freed is stale also while a queue still holds it", "[transfer][M10]") {
  watched_block mr;
  holder_of_memory holder;
  REQUIRE(holder.try_hold(mr));
  mr.give_up();
  CHECK_FALSE(holder.try_hold(mr));
  CHECK_FALSE(mr.released);
  holder.let_go(mr);
  CHECK(mr.released);
}

TEST_CASE("each of several blocks is held once", "[transfer][M10]") {
  std::array<watched_block, 4> memory;
  holder_of_memory holder;
  for (int time = 0; time < 3; ++time)
    for (const watched_block& mr : memory) REQUIRE(holder.try_hold(mr));
  for (watched_block& mr : memory) {
    CHECK(mr.block.holders() == 2);
    mr.give_up();
    CHECK_FALSE(holder.try_hold(mr));
    for (int time = 0; time < 3; ++time) {
      CHECK_FALSE(mr.released);
      holder.let_go(mr);
    }
    CHECK(mr.released);
  }
}

TEST_CASE("in whatever order blocks are held and let go, each is held while it is needed",
          "[transfer][M10]") {
  std::mt19937 random{1};
  for (int round = 0; round < 50; ++round) {
    std::array<watched_block, 24> memory;  // More than are counted.
    std::array<unsigned, memory.size()> needed{};
    holder_of_memory holder;
    const auto check = [&] {
      for (std::size_t i = 0; i < memory.size(); ++i) {
        const watched_block& mr = memory[i];
        REQUIRE(mr.released == (mr.given_up && needed[i] == 0));
        if (needed[i] > 0) REQUIRE(mr.block.holders() > (mr.given_up ? 0u : 1u));
        if (needed[i] == 0 && !mr.given_up) REQUIRE(mr.block.holders() == 1);
      }
    };
    const std::size_t used = round % 2 == 0 ? 3 : memory.size();
    for (int step = 0; step < 100; ++step) {
      const std::size_t which = random() % used;
      watched_block& mr = memory[which];
      if (random() % 30 == 0 && !mr.given_up) {
        mr.give_up();
      } else if (random() % 2 == 0) {
        REQUIRE(holder.try_hold(mr) == !mr.given_up);
        if (!mr.given_up) ++needed[which];
      } else if (needed[which] > 0) {
        --needed[which];
        holder.let_go(mr);
      }
      check();
    }
    for (std::size_t i = 0; i < memory.size(); ++i)
      for (; needed[i] > 0; --needed[i]) holder.let_go(memory[i]);
    check();
  }
}

TEST_CASE("what a task that looks works on is held once, until its turn ends", "[transfer][M10]") {
  watched_block mr{64};
  holder_of_memory holder;
  holder.home.turn([&] {
    for (int i = 0; i < 3; ++i) {
      REQUIRE(holder.try_hold(mr));
      CHECK(mr.block.holders() == 2);
      holder.let_go(mr);
      CHECK(mr.block.holders() == 2);
    }
    mr.give_up();
    CHECK_FALSE(holder.try_hold(mr));
    CHECK_FALSE(mr.released);
  });
  CHECK(mr.released);
}

TEST_CASE("memory that is needed beyond the turn is held on", "[transfer][M10]") {
  watched_block mr{64};
  holder_of_memory holder;
  holder.home.turn([&] { REQUIRE(holder.try_hold(mr)); });
  mr.give_up();
  CHECK_FALSE(mr.released);
  holder.let_go(mr);
  CHECK(mr.released);
}

TEST_CASE("memory of the program's own is let go of at once", "[transfer][M10]") {
  watched_block mr;
  holder_of_memory holder;
  holder.home.turn([&] {
    REQUIRE(holder.try_hold(mr));
    holder.let_go(mr);
    mr.give_up();
    CHECK(mr.released);
  });
}

TEST_CASE("so is what an allocator would miss", "[transfer][M10]") {
  constexpr std::size_t most = held_memory::turn_bytes_max;
  watched_block small{most}, large{most + 1};
  holder_of_memory holder, other;
  const auto use = [](holder_of_memory& of, watched_block& mr) {
    REQUIRE(of.try_hold(mr));
    of.let_go(mr);
    mr.give_up();
  };
  holder.home.turn([&] {
    use(holder, small);
    CHECK_FALSE(small.released);
  });
  other.home.turn([&] {
    use(other, large);
    CHECK(large.released);
  });
}

TEST_CASE("of several blocks in a turn the first alone is held until its end", "[transfer][M10]") {
  watched_block first{64}, second{64};
  holder_of_memory holder;
  holder.home.turn([&] {
    for (watched_block* mr : {&first, &second}) {
      REQUIRE(holder.try_hold(*mr));
      holder.let_go(*mr);
      mr->give_up();
    }
    CHECK_FALSE(first.released);
    CHECK(second.released);
  });
  CHECK(first.released);
}

TEST_CASE("who ends amid a turn keeps no memory", "[transfer][M10]") {
  watched_block mr{64};
  looking_home home;
  home.turn([&] {
    held_memory held{nullptr, home};
    REQUIRE(held.try_hold(mr.block, mr.generation, true));
    held.let_go(mr.block);
    mr.give_up();
  });
  CHECK(mr.released);
}

TEST_CASE("memory of another protection domain is not held", "[transfer][M10]") {
  watched_block mr;
  looking_home home;
  ibv_pd other{};
  held_memory held{&other, home};
  CHECK_FALSE(held.try_hold(mr.block, mr.generation, true));
  CHECK(mr.block.holders() == 1);
}
