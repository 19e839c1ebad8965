#include <cordma/detail/coro/frame_cache.hpp>

#include "support/allocations.hpp"
#include "support/skip.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <array>
#include <cstring>
#include <thread>
#include <vector>

using namespace cordma;

namespace {

bool is_full_of(const void* block, int byte, std::size_t size) {
  const auto* const bytes = static_cast<const unsigned char*>(block);
  return std::all_of(bytes, bytes + size, [byte](unsigned char b) { return b == byte; });
}

}  // namespace

TEST_CASE("blocks of every size can be written from end to end, and none is in another", "[coro]") {
  for (std::size_t size : {1ul, 63ul, 64ul, 65ul, 128ul, 4097ul, frame_cache::block_bytes_max,
                           frame_cache::block_bytes_max + 1}) {
    CAPTURE(size);
    for (int round = 0; round < 3; ++round) {
      std::array<void*, 3> blocks{};
      for (void*& block : blocks) block = frame_cache::allocate(size);
      for (std::size_t n = 0; n < 3; ++n) std::memset(blocks[n], 0xa5 + int(n), size);
      for (std::size_t n = 0; n < 3; ++n) {
        CHECK(is_full_of(blocks[n], 0xa5 + int(n), size));
        frame_cache::deallocate(blocks[n], size);
      }
    }
  }
}

TEST_CASE("a block that is freed serves the next of its size class", "[coro]") {
  if (!support::counts_allocations()) CORDMA_SKIP("allocations are not counted under a sanitizer");
  frame_cache::deallocate(frame_cache::allocate(200), 200);
  const auto before = support::allocation_count();
  void* const block = frame_cache::allocate(256);  // 129 to 256 bytes are one class.
  CHECK(support::allocation_count() == before);
  frame_cache::deallocate(block, 256);
}

TEST_CASE("no more is kept than the limit says", "[coro]") {
  if (!support::counts_allocations()) CORDMA_SKIP("allocations are not counted under a sanitizer");
  constexpr std::size_t size = frame_cache::block_bytes_max;
  constexpr std::size_t kept_max = frame_cache::bytes_per_class_max / size;
  std::vector<void*> blocks(kept_max + 10);
  for (void*& block : blocks) block = frame_cache::allocate(size);
  for (void* block : blocks) frame_cache::deallocate(block, size);
  const auto before = support::allocation_count();
  for (void*& block : blocks) block = frame_cache::allocate(size);
  CHECK(support::allocation_count() - before == 10);
  for (void* block : blocks) frame_cache::deallocate(block, size);
}

TEST_CASE("a block may be freed on another thread than it came from, also as that one ends",
          "[coro]") {
  std::vector<void*> blocks(100);
  std::thread{[&] {
    for (void*& block : blocks) {
      block = frame_cache::allocate(500);
      std::memset(block, 0x5a, 500);
    }
  }}.join();
  for (void* block : blocks) {
    CHECK(is_full_of(block, 0x5a, 500));
    frame_cache::deallocate(block, 500);
  }

  struct late {
    ~late() {
      if (block != nullptr) frame_cache::deallocate(block, 500);
    }
    void* block = nullptr;
  };
  std::thread{[] {
    // Made before the cache is first used, so destroyed after it.
    thread_local late last;
    last.block = frame_cache::allocate(500);
    frame_cache::deallocate(frame_cache::allocate(500), 500);
  }}.join();
}
