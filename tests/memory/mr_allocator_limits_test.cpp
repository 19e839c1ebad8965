#include <cordma/memory/mr_allocator.hpp>

#include "support/aborts.hpp"
#include "support/allocations.hpp"
#include "support/device.hpp"
#include "support/mappings.hpp"
#include "support/skip.hpp"

#include <cordma/base/error.hpp>

#include <sys/resource.h>
#include <catch2/catch.hpp>

#include <cstdio>
#include <vector>

using namespace cordma;

// [private]: with -Djemalloc=shared and its opt.retain, what is freed stays with jemalloc.
namespace {

constexpr std::size_t mebibyte = std::size_t{1} << 20;

struct opened_device {
  verbs::context ctx{test::device_name()};
  verbs::protection_domain pd{ctx};
};

}  // namespace

TEST_CASE("an allocator gives memory back and ends where no address may be mapped any more",
          "[memory][device][private]") {
  // A sanitizer maps memory of its own all the time.
  if (!support::counts_allocations()) CORDMA_SKIP("a sanitizer needs addresses of its own");
  const support::death seen = support::run_in_child([] {
    opened_device d;
    const rlimit none{1, RLIM_INFINITY};
    const rlimit any{RLIM_INFINITY, RLIM_INFINITY};
    {
      mr_allocator memory{d.pd, {.limit_bytes = 64 * mebibyte}};
      std::byte* const at = memory.allocate_zeroed(8 * mebibyte).bytes().data();
      if (::setrlimit(RLIMIT_AS, &none) != 0 || !test::is_resident(at)) return;
      memory.trim();
      if (memory.counters().registered_bytes != 0 || test::is_resident(at)) return;
      ::setrlimit(RLIMIT_AS, &any);
      static_cast<void>(memory.allocate_zeroed(8 * mebibyte));
      ::setrlimit(RLIMIT_AS, &none);
    }
    // The device is closed at the limit, too.
    std::fputs("it ended", stderr);
  });
  CHECK(seen.text == "it ended");
}

TEST_CASE("all that is free within the limit can be had, whatever it was before",
          "[memory][device][private]") {
  opened_device d;
  for (const std::size_t limit : {4 * mebibyte, 8 * mebibyte, 16 * mebibyte, 26 * mebibyte}) {
    for (const std::size_t piece :
         {std::size_t{256}, std::size_t{4096}, std::size_t{100'000}, mebibyte}) {
      mr_allocator memory{d.pd, {.limit_bytes = limit}};
      {
        std::vector<local_mr> all;
        try {
          for (;;) all.push_back(memory.allocate_uninitialized(piece));
        } catch (const error& e) {
          CHECK(e.failure().code == errc::limit_exceeded);
        }
        CHECK(memory.counters().registered_bytes == limit);
        // No memory is free while the pieces are in use.
        CHECK_THROWS_AS(memory.allocate_uninitialized(limit / 2), error);
      }
      INFO("limit " << limit << ", pieces of " << piece);
      CHECK_NOTHROW(memory.allocate_uninitialized(limit / 2));
      // A piece that stays in use costs its chunk, not more.
      const local_mr one = memory.allocate_uninitialized(piece);
      CHECK_NOTHROW(memory.allocate_uninitialized(limit / 4));
    }
  }
}

TEST_CASE("a request that what is in use leaves no room for is refused without trimming",
          "[memory][device]") {
  opened_device d;
  mr_allocator memory{d.pd, {.limit_bytes = 16 * mebibyte}};
  const local_mr large = memory.allocate_uninitialized(9 * mebibyte);
  static_cast<void>(memory.allocate_uninitialized(64));
  const mr_allocator_counters before = memory.counters();
  CHECK_THROWS_AS(memory.allocate_uninitialized(8 * mebibyte), error);
  CHECK(memory.counters().registrations == before.registrations);
  CHECK(memory.counters().registered_bytes == before.registered_bytes);
}
