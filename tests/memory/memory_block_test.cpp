#include <cordma/detail/memory/memory_block.hpp>

#include <cordma/detail/memory/lease_block.hpp>

#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include <array>
#include <atomic>
#include <thread>
#include <vector>

using cordma::memory_block;
using cordma::verbs::access;

namespace {

void count_release(memory_block& block, void* context) noexcept {
  ++*static_cast<int*>(context);
  memory_block::recycle(block);
}

memory_block& make(int& released) {
  return memory_block::make({nullptr, access::local_write, &count_release, &released});
}

}  // namespace

TEST_CASE("a block lives until its last holder lets go, and is released once", "[memory][M10]") {
  int released = 0;
  memory_block& block = make(released);
  CHECK(block.holders() == 1);
  CHECK(block.access() == access::local_write);
  const std::uint32_t generation = block.generation();
  REQUIRE(block.try_acquire(generation));
  REQUIRE(block.try_acquire(generation));
  CHECK(block.holders() == 3);
  block.give_up();
  CHECK(block.holders() == 2);
  CHECK_FALSE(block.try_acquire(generation));
  CHECK(block.holders() == 2);
  block.release();
  CHECK(released == 0);
  block.release();
  CHECK(released == 1);
  CHECK(block.holders() == 0);
  CHECK_FALSE(block.try_acquire(generation));
}

TEST_CASE("a block that is revoked is stale, and its owner still holds it", "[memory][M10]") {
  int released = 0;
  memory_block& block = make(released);
  const std::uint32_t generation = block.generation();
  REQUIRE(block.try_acquire(generation));
  CHECK(block.revoke(generation));
  CHECK_FALSE(block.revoke(generation));
  CHECK_FALSE(block.try_acquire(generation));
  CHECK(block.holders() == 2);
  block.give_up();
  CHECK(released == 0);
  block.release();
  CHECK(released == 1);
}

TEST_CASE("a block's next life is not held by what is left of the one before", "[memory][M10]") {
  int released = 0;
  memory_block& first = make(released);
  const std::uint32_t old = first.generation();
  first.give_up();
  memory_block& second = make(released);
  REQUIRE(&first == &second);  // Reused, never unmapped.
  CHECK(second.generation() != old);
  CHECK_FALSE(second.try_acquire(old));
  CHECK(second.try_acquire(second.generation()));
  second.release();
  second.give_up();
  CHECK(released == 2);
}

TEST_CASE("many blocks are all different", "[memory]") {
  int released = 0;
  std::vector<memory_block*> all;
  for (int i = 0; i < 1000; ++i) all.push_back(&make(released));
  for (memory_block* block : all) CHECK(block->holders() == 1);
  for (memory_block* block : all) block->give_up();
  CHECK(released == 1000);
}

TEST_CASE("threads hold and let go while the owner gives up", "[memory][M10][M6]") {
  constexpr int rounds = 200;
  std::array<std::thread, 4> threads;
  // Block and generation are published together, as a slice carries them: a block with another's
  // generation is what no slice can be.
  struct tenure {
    memory_block* block;
    std::uint32_t generation;
  };
  std::array<tenure, rounds> tenures{};
  std::atomic<const tenure*> current{nullptr};
  std::atomic<bool> over{false};
  std::atomic<long> held{0};
  std::atomic<int> released{0};
  const auto release = [](memory_block& done, void* context) noexcept {
    static_cast<std::atomic<int>*>(context)->fetch_add(1);
    memory_block::recycle(done);
  };
  for (std::thread& thread : threads) {
    thread = std::thread{[&] {
      while (!over) {
        const tenure* const seen = current.load(std::memory_order_acquire);
        if (seen == nullptr || !seen->block->try_acquire(seen->generation)) continue;
        ++held;
        seen->block->release();
      }
    }};
  }
  for (tenure& next : tenures) {
    memory_block& block = memory_block::make({nullptr, access::none, release, &released});
    next = {&block, block.generation()};
    current.store(&next, std::memory_order_release);
    const long before = held;
    while (held == before) std::this_thread::yield();
    block.give_up();  // A thread that holds the block at this moment releases it.
  }
  over = true;
  for (std::thread& thread : threads) thread.join();
  CHECK(released == rounds);
}

TEST_CASE("blocks are there in the child of a fork, whatever other threads were at",
          "[memory][fork]") {
  std::atomic<bool> over{false};
  const auto use_blocks = [] {
    int released = 0;
    make(released).give_up();
    constexpr std::size_t more_than_a_thread_keeps = 80;
    std::vector<cordma::lease_block*> leases(more_than_a_thread_keeps);
    for (cordma::lease_block*& one : leases) one = &cordma::lease_block::make(nullptr);
    for (cordma::lease_block* one : leases) one->release();
  };
  std::vector<std::thread> threads(3);
  for (std::thread& t : threads) {
    t = std::thread{[&] {
      while (!over.load()) use_blocks();
    }};
  }
  bool well = true;
  for (int forks = 0; forks < 100 && well; ++forks) {
    const pid_t child = ::fork();
    if (child == 0) {
      constexpr unsigned seconds_max = 20;  // A hang is a failure.
      ::alarm(seconds_max);
      use_blocks();
      ::_exit(0);
    }
    int status = -1;
    well = ::waitpid(child, &status, 0) == child && status == 0;
  }
  over.store(true);
  for (std::thread& t : threads) t.join();
  CHECK(well);
}
