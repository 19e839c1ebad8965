#include "queue/mr_hold_cache.hpp"

#include <catch2/catch.hpp>

#include <infiniband/verbs.h>

#include <array>
#include <cstddef>
#include <random>
#include <vector>

using cordma::memory_block;
using cordma::mr_hold_cache;

namespace {

/// Owned memory that notices its release.
struct watched_block {
  /// A block of an allocator, if its size is known.
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
  memory_block& block = memory_block::adopt({nullptr, cordma::verbs::access::none,
                                             [](memory_block& b, void* context) noexcept {
                                               *static_cast<bool*>(context) = true;
                                               memory_block::recycle(b);
                                             },
                                             &released});
  std::uint32_t generation = block.generation();
};

/// Holds memory as queues do.
struct holder_of_memory {
  [[nodiscard]] bool try_acquire(const watched_block& mr) {
    return held.try_acquire(mr.block, mr.generation);
  }
  void release(const watched_block& mr) { held.release(mr.block); }
  mr_hold_cache held{nullptr};
};

}  // namespace

TEST_CASE("a queue holds the block that it works on once, until nobody needs it", "[queue][M10]") {
  watched_block mr;
  holder_of_memory holder;
  REQUIRE(holder.try_acquire(mr));
  REQUIRE(holder.try_acquire(mr));
  REQUIRE(holder.try_acquire(mr));
  CHECK(mr.block.holders() == 2);
  holder.release(mr);
  holder.release(mr);
  CHECK(mr.block.holders() == 2);
  mr.give_up();
  CHECK_FALSE(mr.released);
  holder.release(mr);
  CHECK(mr.released);
}

TEST_CASE("memory that was freed is stale also while a queue still holds it", "[queue][M10]") {
  watched_block mr;
  holder_of_memory holder;
  REQUIRE(holder.try_acquire(mr));
  mr.give_up();
  CHECK_FALSE(holder.try_acquire(mr));
  CHECK_FALSE(mr.released);
  holder.release(mr);
  CHECK(mr.released);
}

TEST_CASE("each of several blocks is held once", "[queue][M10]") {
  std::array<watched_block, 4> memory;
  holder_of_memory holder;
  for (int time = 0; time < 3; ++time)
    for (const watched_block& mr : memory) REQUIRE(holder.try_acquire(mr));
  for (watched_block& mr : memory) {
    CHECK(mr.block.holders() == 2);
    mr.give_up();
    CHECK_FALSE(holder.try_acquire(mr));
    for (int time = 0; time < 3; ++time) {
      CHECK_FALSE(mr.released);
      holder.release(mr);
    }
    CHECK(mr.released);
  }
}

TEST_CASE("in whatever order blocks are held and let go, each is held while it is needed",
          "[queue][M10]") {
  std::mt19937 random{1};
  for (int round = 0; round < 50; ++round) {
    std::array<watched_block, 24> memory;  // more blocks than are counted
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
        REQUIRE(holder.try_acquire(mr) == !mr.given_up);
        if (!mr.given_up) ++needed[which];
      } else if (needed[which] > 0) {
        --needed[which];
        holder.release(mr);
      }
      check();
    }
    for (std::size_t i = 0; i < memory.size(); ++i)
      for (; needed[i] > 0; --needed[i]) holder.release(memory[i]);
    check();
  }
}

TEST_CASE("memory of another protection domain is not held", "[queue][M10]") {
  watched_block mr;
  ibv_pd other{};
  mr_hold_cache held{&other};
  CHECK_FALSE(held.try_acquire(mr.block, mr.generation));
  CHECK(mr.block.holders() == 1);
}
