#include <cordma/transfer/held_memory.hpp>

#include <catch2/catch.hpp>

#include <array>
#include <cstddef>
#include <random>
#include <vector>

using cordma::held_memory;
using cordma::memory_block;

namespace {

/// Owned memory that notices its release.
struct watched_block {
  watched_block() = default;
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
  memory_block& block = memory_block::make(
      nullptr, cordma::verbs::access::none,
      [](memory_block& b, void* context) noexcept {
        *static_cast<bool*>(context) = true;
        memory_block::recycle(b);
      },
      &released);
  std::uint32_t generation = block.generation();
};

}  // namespace

TEST_CASE("a queue holds the block that it works on once, until nobody needs it",
          "[transfer][M10]") {
  watched_block mr;
  held_memory held;
  REQUIRE(held.try_hold(mr.block, mr.generation));
  REQUIRE(held.try_hold(mr.block, mr.generation));
  held.hold(mr.block);
  CHECK(mr.block.holders() == 2);
  held.let_go(mr.block);
  held.let_go(mr.block);
  CHECK(mr.block.holders() == 2);
  mr.give_up();
  CHECK_FALSE(mr.released);
  held.let_go(mr.block);
  CHECK(mr.released);
}

TEST_CASE("memory that was freed is stale also while a queue still holds it", "[transfer][M10]") {
  watched_block mr;
  held_memory held;
  REQUIRE(held.try_hold(mr.block, mr.generation));
  mr.give_up();
  CHECK_FALSE(held.try_hold(mr.block, mr.generation));
  CHECK_FALSE(mr.released);
  held.let_go(mr.block);
  CHECK(mr.released);
}

TEST_CASE("in whatever order blocks are held and let go, each is held while it is needed",
          "[transfer][M10]") {
  std::mt19937 random{1};
  for (int round = 0; round < 200; ++round) {
    std::array<watched_block, 3> memory;
    std::array<unsigned, 3> needed{};
    held_memory held;
    const auto check = [&] {
      for (std::size_t i = 0; i < memory.size(); ++i) {
        REQUIRE(memory[i].released == (memory[i].given_up && needed[i] == 0));
        if (needed[i] > 0) REQUIRE(memory[i].block.holders() > (memory[i].given_up ? 0u : 1u));
        if (needed[i] == 0 && !memory[i].given_up) REQUIRE(memory[i].block.holders() == 1);
      }
    };
    for (int step = 0; step < 60; ++step) {
      const std::size_t which = random() % memory.size();
      watched_block& mr = memory[which];
      if (random() % 30 == 0 && !mr.given_up) {
        mr.give_up();
      } else if (random() % 2 == 0) {
        REQUIRE(held.try_hold(mr.block, mr.generation) == !mr.given_up);
        if (!mr.given_up) ++needed[which];
      } else if (needed[which] > 0) {
        --needed[which];
        held.let_go(mr.block);
      }
      check();
    }
    for (std::size_t i = 0; i < memory.size(); ++i)
      for (; needed[i] > 0; --needed[i]) held.let_go(memory[i].block);
    check();
  }
}
