#include "../../lib/memory/chunk_store.hpp"

#include "support/device.hpp"
#include "support/sizes.hpp"
#include "support/verbs_faults.hpp"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <catch2/catch.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <thread>
#include <vector>

#include <linux/mempolicy.h>

using namespace cordma;
using test::mib;

namespace {

struct fixture {
  verbs::context ctx{test::device_name()};
  verbs::protection_domain pd{ctx};
  chunk_store chunks{pd,
                     {.chunk_bytes = 2 * mib, .chunk_bytes_max = 8 * mib, .limit_bytes = 64 * mib}};
};

}  // namespace

TEST_CASE("chunks double until they are as large as may be", "[memory][device]") {
  fixture f;
  std::vector<std::size_t> seen;
  for (int n = 0; n < 32; ++n) {
    REQUIRE(f.chunks.take(mib, 4096) != nullptr);
    const std::size_t now = f.chunks.count().registered_bytes;
    if (seen.empty() || seen.back() != now) seen.push_back(now);
  }
  CHECK(seen == std::vector{2 * mib, 6 * mib, 14 * mib, 22 * mib, 30 * mib, 38 * mib});
}

TEST_CASE("what is larger than a chunk gets one of its own size", "[memory][device]") {
  fixture f;
  auto* const large = static_cast<std::byte*>(f.chunks.take(21 * mib, 4096));
  REQUIRE(large != nullptr);
  CHECK(f.chunks.count().registered_bytes == 22 * mib);
  CHECK(f.chunks.keys_of(large).lkey == f.chunks.keys_of(large + 21 * mib - 1).lkey);
  CHECK(f.chunks.in_one_chunk(large, large + 21 * mib - 1));
  void* const other = f.chunks.take(2 * mib, 4096);
  CHECK_FALSE(f.chunks.in_one_chunk(large, other));
  CHECK(f.chunks.keys_of(other).lkey != f.chunks.keys_of(large).lkey);
  CHECK(f.chunks.keys_of(other).rkey == 0);
}

TEST_CASE("pieces of what was taken come back in any order and are one again", "[memory][device]") {
  fixture f;
  auto* const all = static_cast<std::byte*>(f.chunks.take(2 * mib, 2 * mib));
  REQUIRE(all != nullptr);
  for (const std::size_t piece : {3u, 0u, 1u, 2u})
    f.chunks.give_back(all + piece * mib / 2, mib / 2);
  CHECK(f.chunks.take(2 * mib, 2 * mib) == all);
  f.chunks.give_back(all, 2 * mib);
  f.chunks.trim(0);
  CHECK(f.chunks.count().registered_bytes == 0);
  CHECK(f.chunks.count().registered_bytes_peak == 2 * mib);
}

TEST_CASE("addresses are used again, however chunks come and go", "[memory][device]") {
  fixture f;
  for (int round = 0; round < 50; ++round) {
    void* const small = f.chunks.take(mib, 4096);
    void* const large = f.chunks.take(40 * mib, 4096);
    REQUIRE((small != nullptr && large != nullptr));
    f.chunks.give_back(small, mib);
    f.chunks.trim(0);
    f.chunks.give_back(large, 40 * mib);
    f.chunks.trim(0);
  }
  CHECK(f.chunks.count().chunks == 0);
  CHECK(f.chunks.count().registrations == 100);
}

TEST_CASE("a chunk that cannot be had is no chunk, and its reason is kept", "[memory][device]") {
  fixture f;
  verbs_faults::fail_call(1, ENOMEM);
  CHECK(f.chunks.take(mib, 4096) == nullptr);
  CHECK_THAT(f.chunks.refusal().to_string(), Catch::Contains("ibv_reg_mr: Cannot allocate memory"));
  CHECK(f.chunks.take(65 * mib, 4096) == nullptr);
  CHECK_THAT(f.chunks.refusal().to_string(), Catch::Contains("exceed limit_bytes, 67108864"));
  CHECK(f.chunks.count().registered_bytes == 0);
  CHECK(f.chunks.take(64 * mib, 4096) != nullptr);
}

TEST_CASE("threads that need a chunk at once each get what they need", "[memory][device]") {
  fixture f;
  std::atomic<int> refused{0};
  std::array<std::thread, 4> threads;
  for (std::thread& thread : threads) {
    thread = std::thread{[&] {
      for (int round = 0; round < 2000; ++round) {
        void* const at = f.chunks.take(2 * mib, 4096);
        if (at == nullptr) {
          ++refused;
          continue;
        }
        f.chunks.give_back(at, 2 * mib);
        if (round % 50 == 0) f.chunks.trim(0);
      }
    }};
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(refused == 0);
}

TEST_CASE("pages come prefaulted, and from the node that was asked for", "[memory][device]") {
  fixture f;
  const auto resident = [](void* at) {
    std::array<unsigned char, 256> pages{};
    REQUIRE(::mincore(at, mib, pages.data()) == 0);
    return std::ranges::all_of(pages, [](unsigned char page) { return (page & 1) != 0; });
  };
  const auto policy = [](void* at) {
    int mode = -1;
    return ::syscall(SYS_get_mempolicy, &mode, nullptr, 0, at, MPOL_F_ADDR) == 0 ? mode : -1;
  };
  const auto chunks_with = [&](mr_allocator_options options) {
    options.chunk_bytes = options.chunk_bytes_max = options.limit_bytes = 2 * mib;
    return chunk_store{f.pd, options};
  };
  chunk_store plain = chunks_with({});
  void* const lazily = plain.take(mib, 4096);
  if (test::is_soft()) CHECK_FALSE(resident(lazily));  // A real device pins them.
  CHECK(policy(lazily) == MPOL_DEFAULT);
  for (const bool huge : {false, true}) {
    chunk_store asked = chunks_with({.huge_pages = huge, .numa_node = 0, .prefault = true});
    void* const at = asked.take(mib, 4096);
    REQUIRE(at != nullptr);
    CHECK(resident(at));
    CHECK(policy(at) == MPOL_BIND);
  }
}
