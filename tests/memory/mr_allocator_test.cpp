#include <cordma/memory/mr_allocator.hpp>

#include "../../lib/base/spare_memory.hpp"
#include "support/aborts.hpp"
#include "support/allocations.hpp"
#include "support/device.hpp"
#include "support/loopback.hpp"
#include "support/skip.hpp"
#include "support/soak.hpp"
#include "support/thread_sanitizer.hpp"
#include "support/verbs_faults.hpp"

#include <cordma/base/error.hpp>
#include <cordma/coro/scope.hpp>

#include <sys/mman.h>
#include <sys/resource.h>
#include <catch2/catch.hpp>

#include <algorithm>
#include <array>
#include <cstdio>
#include <mutex>
#include <optional>
#include <random>
#include <set>
#include <thread>

using namespace cordma;

// [private]: what depends on our own jemalloc's settings. With -Djemalloc=shared and its
// opt.retain, what is purged stays with jemalloc, and it asks for more at a time.
namespace {

struct device {
  verbs::context ctx{test::device_name()};
  verbs::protection_domain pd{ctx};
};

bool all_are(std::span<const std::byte> bytes, std::byte value) {
  return std::ranges::all_of(bytes, [value](std::byte b) { return b == value; });
}

long registrations_left() {
  return verbs_faults::live_objects()[std::size_t(verbs_faults::kind::mr)];
}

std::string what_of(const auto& body) {
  try {
    body();
  } catch (const error& e) {
    return e.what();
  }
  return "nothing was thrown";
}

}  // namespace

TEST_CASE("in a scope of spare memory, an allocator leaves an arena to the next one",
          "[memory][device][private]") {
  device d;
  detail::spare_memory spare;
  constexpr std::size_t limit = std::size_t{16} << 20, chunk = std::size_t{2} << 20;
  for (int round = 0; round < 3; ++round) {
    const detail::spare_memory_scope scope{spare};
    mr_allocator memory{d.pd, {.limit_bytes = limit}};
    CHECK(spare.take_arena() == std::nullopt);
    for (const std::size_t size : {std::size_t{100}, std::size_t{40'000}, std::size_t{5} << 20}) {
      local_mr some = memory.allocate_zeroed(size);
      CHECK(all_are(some.bytes(), std::byte{0}));
      std::ranges::fill(some.bytes(), std::byte{1});
    }
    CHECK(memory.counters().chunks > 0);
  }
  CHECK(spare.take_arena().has_value());
  CHECK(spare.take_arena() == std::nullopt);
  CHECK(::munmap(spare.take(4 * limit + chunk), 4 * limit + chunk) == 0);
}

TEST_CASE("zeroed memory is zero, also when it is used again", "[memory][device][M1]") {
  device d;
  mr_allocator memory{d.pd};
  for (const std::size_t size : {std::size_t{1}, std::size_t{100}, std::size_t{40'000},
                                 std::size_t{1} << 20, std::size_t{16} << 20}) {
    const std::byte* before = nullptr;
    for (int round = 0; round < 3; ++round) {
      local_mr mr = memory.allocate_zeroed(size);
      CHECK(all_are(mr.bytes(), std::byte{0}));
      std::ranges::fill(mr.bytes(), std::byte{0xff});
      // jemalloc puts large ones at another offset in their pages each time.
      if (round > 0 && size <= 100) CHECK(mr.bytes().data() == before);
      before = mr.bytes().data();
    }
  }
}

TEST_CASE("size and alignment hold for all layouts", "[memory][device][M2]") {
  device d;
  mr_allocator memory{d.pd};
  std::vector<local_mr> kept;  // Kept memory must lie side by side.
  for (std::size_t size = 1; size <= std::size_t{2} << 20; size = size * 2 - size / 3) {
    for (std::size_t alignment = 1; alignment <= mr_allocator::alignment_max; alignment *= 4) {
      local_mr mr = memory.allocate_uninitialized(size, alignment);
      CHECK(mr.size_bytes() == size);
      CHECK(reinterpret_cast<std::uintptr_t>(mr.bytes().data()) % alignment == 0);
      if (size > std::size_t{64} << 10) continue;
      std::ranges::fill(mr.bytes(), std::byte(kept.size()));
      kept.push_back(std::move(mr));
    }
  }
  for (std::size_t n = 0; n < kept.size(); ++n) REQUIRE(all_are(kept[n].bytes(), std::byte(n)));
  kept.clear();
  for (const std::size_t alignment : {std::size_t{16}, mr_allocator::alignment_max}) {
    local_mr large = memory.allocate_uninitialized(std::size_t{64} << 20, alignment);
    CHECK(reinterpret_cast<std::uintptr_t>(large.bytes().data()) % alignment == 0);
    large.bytes().front() = large.bytes().back() = std::byte{1};
  }
}

TEST_CASE("what cannot be allocated is refused with the value and the way out",
          "[memory][device]") {
  device d;
  mr_allocator memory{d.pd, {.limit_bytes = std::size_t{8} << 20}};
  const auto refused = [&](std::size_t size, std::size_t alignment) {
    return what_of([&] { static_cast<void>(memory.allocate_uninitialized(size, alignment)); });
  };
  CHECK_THAT(refused(0, 16), Catch::Contains("0 bytes: ask for at least 1"));
  CHECK_THAT(refused(1, 0), Catch::Contains("alignment 0: a power of two up to 2097152"));
  CHECK_THAT(refused(1, 24), Catch::Contains("alignment 24"));
  CHECK_THAT(refused(1, std::size_t{4} << 20), Catch::Contains("alignment 4194304"));
  CHECK_THAT(refused(std::size_t{9} << 20, 16),
             Catch::Contains("9437184 bytes exceed limit_bytes, 8388608"));
  CHECK_THAT(refused(~std::size_t{0}, 16), Catch::Contains("exceed limit_bytes"));
  CHECK(memory.statistics().registrations == 0);

  const auto made = [&](const mr_allocator_options& options) {
    return what_of([&] { const mr_allocator other{d.pd, options}; });
  };
  CHECK_THAT(made({.chunk_bytes = 3u << 20}),
             Catch::Contains("chunk_bytes 3145728: a power of two"));
  CHECK_THAT(made({.chunk_bytes = 1u << 20}), Catch::Contains("chunk_bytes 1048576"));
  CHECK_THAT(made({.chunk_bytes = 4u << 20, .chunk_bytes_max = 2u << 20}),
             Catch::Contains("chunk_bytes_max 2097152 is less than chunk_bytes 4194304"));
  CHECK_THAT(made({.limit_bytes = ~std::size_t{0}}), Catch::Contains("at most 17592186044416"));
  CHECK_THAT(made({.access = verbs::access::zero_based}), Catch::Contains("access zero_based"));
  CHECK_THAT(made({.limit_bytes = 1}), Catch::Contains("limit_bytes 1 is less than one chunk"));
  CHECK_THAT(made({.numa_node = 4000}),
             Catch::Contains("mbind(node 0xfa0): Invalid argument: no such NUMA node"));
}

TEST_CASE("two domains or two accesses never share a registration", "[memory][device][M3]") {
  device d;
  verbs::protection_domain other_pd{d.ctx};
  mr_allocator one{d.pd};
  mr_allocator other{other_pd};
  mr_allocator open{d.pd, {.access = test::all_access}};
  std::array<std::set<std::uint32_t>, 3> keys;
  std::vector<local_mr> kept;
  for (int n = 0; n < 1000; ++n) {
    // One thread asks the allocators in turn: what one frees must not come back from another.
    std::size_t which = 0;
    for (mr_allocator* const from : {&one, &other, &open}) {
      static_cast<void>(from->allocate_uninitialized(64));
      kept.push_back(from->allocate_uninitialized(64));
      keys[which++].insert(kept.back().slice().lkey());
      CHECK(kept.back().access() == from->access());
      CHECK(kept.back().slice().block()->pd() ==
            (from == &other ? other_pd : d.pd).native_handle());
    }
  }
  for (const auto& set : keys) CHECK(set.size() == 1);
  CHECK(keys[0] != keys[1]);
  CHECK(keys[0] != keys[2]);
  CHECK(keys[1] != keys[2]);
  CHECK_THROWS_AS(kept[0].remote_slice(), error);
  CHECK(kept[2].remote_slice().rkey() != 0);
}

TEST_CASE("ten thousand allocations cost one registration a chunk, and none is left",
          "[memory][device][M4]") {
  device d;
  const long before = registrations_left();
  {
    mr_allocator memory{d.pd};
    std::vector<local_mr> kept;
    for (int n = 0; n < 10'000; ++n) kept.push_back(memory.allocate_uninitialized(1024));
    mr_allocator_statistics now = memory.statistics();
    CHECK(now.registrations == now.chunks);
    CHECK(now.chunks <= 4);  // 2, 4 and 8 MiB.
    CHECK(now.in_use_bytes == 10'000 * 1024);
    CHECK(now.registered_bytes >= now.in_use_bytes);
    CHECK(registrations_left() - before == long(now.chunks));
    kept.clear();
    now = memory.statistics();
    CHECK(now.in_use_bytes == 0);
    CHECK(now.registered_bytes_peak == now.registered_bytes);
  }
  CHECK(registrations_left() == before);
}

TEST_CASE("one allocator too many is told how many there may be", "[memory][device][private]") {
  if (test::is_rxe()) CORDMA_SKIP("the guest has 2 GiB of memory");
  if (CORDMA_TEST_THREAD_SANITIZER) CORDMA_SKIP("one thread, and minutes of clearing shadows");
  device d;
  const mr_allocator_options small{.limit_bytes = mr_allocator::chunk_bytes_min};
  std::vector<std::unique_ptr<mr_allocator>> all;
  const std::string why = what_of([&] {
    while (all.size() < 5000) all.push_back(std::make_unique<mr_allocator>(d.pd, small));
  });
  CHECK(all.size() > 4000);
  CHECK_THAT(why, Catch::Contains("limit exceeded") && Catch::Contains("4094 arenas"));
  all.pop_back();
  CHECK_NOTHROW(mr_allocator{d.pd, small});
}

TEST_CASE("a registration that fails is told with its reason, and the allocator goes on",
          "[memory][device][M5][private]") {
  device d;
  mr_allocator memory{d.pd};
  verbs_faults::fail_call(1, ENOMEM);
  CHECK_THAT(what_of([&] { static_cast<void>(memory.allocate_uninitialized(64)); }),
             Catch::Contains("ibv_reg_mr: Cannot allocate memory: 2048 KiB: "));
  CHECK(memory.statistics().registrations_failed == 1);
  CHECK(memory.statistics().registered_bytes == 0);
  constexpr std::size_t most_of_a_chunk = std::size_t{1792} << 10;
  const local_mr first = memory.allocate_uninitialized(most_of_a_chunk);
  // The next chunk would be of 4 MiB: where that is too much, what is needed may do.
  verbs_faults::fail_call(1, ENOMEM);
  const local_mr second = memory.allocate_uninitialized(most_of_a_chunk);
  CHECK(memory.statistics().registered_bytes == std::size_t{4} << 20);
  CHECK(memory.statistics().registrations_failed == 2);
  CHECK(memory.statistics().registrations == 2);
}

TEST_CASE("the limit is told with what is registered, and holds", "[memory][device]") {
  device d;
  constexpr std::size_t limit = std::size_t{10} << 20;
  mr_allocator memory{d.pd, {.limit_bytes = limit}};
  std::vector<local_mr> kept;
  const std::string said = what_of([&] {
    for (;;) kept.push_back(memory.allocate_uninitialized(100'000));
  });
  CHECK_THAT(said, Catch::Contains("exceed limit_bytes, 10485760"));
  CHECK(kept.size() > 80);
  CHECK(memory.statistics().registered_bytes == limit);
  kept.pop_back();
  kept.push_back(memory.allocate_uninitialized(100'000));
}

TEST_CASE("where addresses are few, an allocator without a limit of its own makes do with them",
          "[memory][device][private]") {
  // A sanitizer has more of them already than any limit that would be low.
  if (!support::counts_allocations()) CORDMA_SKIP("addresses cannot be few here");
  const auto outcome = support::run_in_child([] {
    constexpr rlim_t few = rlim_t{8} << 30;
    const rlimit addresses{few, few};
    if (::setrlimit(RLIMIT_AS, &addresses) != 0) return;
    device d;
    mr_allocator memory{d.pd};
    const local_mr mr = memory.allocate_zeroed(std::size_t{1} << 20);
    std::fprintf(stderr, "%zu bytes are there", mr.size_bytes());
  });
  CHECK_THAT(outcome.text, Catch::Contains("1048576 bytes are there"));
}

TEST_CASE("what one thread allocates another may free", "[memory][device][M6]") {
  device d;
  mr_allocator memory{d.pd};
  std::vector<local_mr> kept;
  for (int n = 0; n < 1000; ++n) kept.push_back(memory.allocate_zeroed(256));
  std::thread{[&] {
    kept.clear();
    for (int n = 0; n < 1000; ++n) kept.push_back(memory.allocate_zeroed(256));
  }}.join();
  CHECK(memory.statistics().in_use_bytes == 256'000);
  kept.clear();
  CHECK(memory.statistics().in_use_bytes == 0);
  CHECK(memory.statistics().registrations == 1);
}

TEST_CASE("registered memory and the program's malloc know nothing of one another",
          "[memory][device][M9]") {
  device d;
  mr_allocator memory{d.pd};
  const local_mr warm = memory.allocate_uninitialized(64);
  static_cast<void>(memory.allocate_uninitialized(5000));
  const std::uint64_t before = support::allocation_count();
  for (int n = 0; n < 1000; ++n) {
    static_cast<void>(memory.allocate_uninitialized(64));
    static_cast<void>(memory.allocate_uninitialized(5000));
  }
  CHECK(support::allocation_count() == before);
  // Memory of malloc lies outside of the chunk.
  const std::byte* const chunk =
      warm.bytes().data() - std::uintptr_t(warm.bytes().data()) % mr_allocator::chunk_bytes_min;
  for (std::size_t size = 1; size < 1'000'000; size *= 3) {
    const std::unique_ptr<std::byte[]> other{new std::byte[size]};
    CHECK((other.get() + size <= chunk || other.get() >= chunk + mr_allocator::chunk_bytes_min));
  }
}

TEST_CASE("two large allocations coexist and are looked up right", "[memory][device][M7]") {
  test::loopback link;
  constexpr std::size_t size = std::size_t{40} << 20;
  local_mr first = link.memory(size);
  local_mr second = link.memory(size);
  CHECK(first.remote_slice().rkey() != second.remote_slice().rkey());
  local_mr small = link.pattern(4096);
  // The device takes each at its far end by the keys that were looked up.
  for (local_mr* const large : {&first, &second}) {
    link.run(link.a->write(small, large->remote_slice().last(4096)));
    link.run(link.a->read(large->first(4096), large->remote_slice().last(4096)));
    CHECK(test::same_bytes(large->first(4096).bytes(), small.bytes()));
  }
}

TEST_CASE("trimming gives back what is free, and drops no page in use",
          "[memory][device][M8][private]") {
  test::loopback link;
  mr_allocator& memory = link.allocator(test::all_access);
  local_mr written = link.pattern(4096);
  const std::byte* const at = written.bytes().data();
  {
    std::vector<local_mr> others;
    for (int n = 0; n < 3000; ++n) others.push_back(memory.allocate_uninitialized(4096));
  }
  const std::size_t before = memory.statistics().registered_bytes;
  CHECK(memory.statistics().chunks >= 3);
  memory.trim(before);
  CHECK(memory.statistics().registered_bytes == before);
  memory.trim();
  CHECK(memory.statistics().chunks == 1);
  CHECK(memory.statistics().registered_bytes < before);
  CHECK(written.bytes().data() == at);
  local_mr seen = link.memory(4096);
  link.run(link.a->read(seen, written.remote_slice()));  // A peer reads the same.
  CHECK(test::same_bytes(seen.bytes(), written.bytes()));
  seen.reset();
  written.reset();
  memory.trim();
  CHECK(memory.statistics().registered_bytes == 0);
  CHECK(memory.statistics().chunks == 0);
  CHECK(all_are(memory.allocate_zeroed(64).bytes(), std::byte{0}));
}

TEST_CASE("a chunk whose deregistration is refused is kept and counted",
          "[memory][device][private]") {
  device d;
  const long before = registrations_left();
  {
    mr_allocator memory{d.pd};
    static_cast<void>(memory.allocate_uninitialized(64));
    verbs_faults::refuse_deregistrations(1);
    memory.trim();
    CHECK(memory.statistics().deregistrations_refused == 1);
    CHECK(memory.statistics().chunks == 1);
    const local_mr mr = memory.allocate_zeroed(64);  // memory of that chunk
    CHECK(memory.statistics().registrations == 1);
  }
  CHECK(registrations_left() == before);
}

TEST_CASE("what stays registered after its allocator stays mapped", "[memory][device]") {
  // A child runs the test: its protection domain cannot be destroyed any more.
  const support::death seen = support::run_in_child([] {
    device& d = *new device;
    std::byte* at = nullptr;
    {
      mr_allocator memory{d.pd};
      at = memory.allocate_uninitialized(64).bytes().data();
      verbs_faults::refuse_deregistrations(1);
    }
    // The device may still write there.
    if (registrations_left() == 1 &&
        ::madvise(at - (std::uintptr_t(at) % 4096), 4096, MADV_WILLNEED) == 0)
      std::fputs("it stays", stderr);
  });
  CHECK(seen.text == "it stays");
}

TEST_CASE("memory that is freed in flight goes with the completion", "[memory][device][M10]") {
  constexpr std::size_t size = 4096;  // Too much to be sent inline.
  test::loopback link{{.min_rnr_timer = 28}};
  mr_allocator& memory = link.allocator(test::all_access);
  local_mr target = link.memory(size);
  local_mr out = link.pattern(size);
  const std::size_t before = memory.statistics().in_use_bytes;
  // A SEND that waits for its receive.
  auto sending = [](test::loopback& l, const_local_mr_slice from) -> task<> {
    co_await l.a->send(from);
  };
  scope sends{link.executor};
  sends.spawn(sending(link, out.slice()));
  link.executor.run_ready();
  const const_local_mr_slice stale = out.slice();
  out.reset();
  CHECK(memory.statistics().in_use_bytes == before);  // The queue pair has it.
  CHECK(link.outcome(link.a->send(stale)).failure().code == errc::stale_slice);
  const message received = link.run(link.b->recv(target));
  CHECK(received.size_bytes == size);
  link.run(sends.join());
  CHECK(memory.statistics().in_use_bytes == before - size);
}

TEST_CASE("memory of the program's own is registered as it is, and let go at the end",
          "[memory][device]") {
  test::loopback link;
  mr_allocator& memory = link.allocator(test::all_access);
  auto bytes = std::make_shared<std::vector<std::byte>>(10'000, std::byte{7});
  const std::weak_ptr<std::vector<std::byte>> watched = bytes;
  const std::span<std::byte> view{*bytes};
  const std::uint64_t before = memory.statistics().registrations;
  {
    local_mr mr = memory.register_external(view, std::move(bytes));
    CHECK(mr.bytes().data() == view.data());
    CHECK(memory.statistics().registrations == before + 1);
    CHECK(memory.statistics().external_bytes == 10'000);
    local_mr seen = link.memory(10'000);
    link.run(link.a->read(seen, mr.remote_slice()));
    CHECK(all_are(seen.bytes(), std::byte{7}));
    CHECK_FALSE(watched.expired());
  }
  CHECK(watched.expired());
  CHECK_THROWS_AS(memory.register_external({}), error);
}

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
TEST_CASE("AddressSanitizer sees who touches memory that was freed, or lies beyond",
          "[memory][device]") {
  const auto dies_of = [](auto touch) {
    return support::run_in_child([touch] {
             device d;
             mr_allocator memory{d.pd};
             touch(memory);
           })
        .text;
  };
  CHECK_THAT(dies_of([](mr_allocator& memory) {
               local_mr mr = memory.allocate_zeroed(64);
               volatile std::byte* const late = mr.bytes().data();
               mr.reset();
               *late = std::byte{1};
             }),
             Catch::Contains("use-after-poison"));
  CHECK_THAT(dies_of([](mr_allocator& memory) {
               local_mr mr = memory.allocate_zeroed(40);
               volatile std::byte* const first = mr.bytes().data();
               first[40] = std::byte{1};
             }),
             Catch::Contains("use-after-poison"));
}
#endif
#endif

TEST_CASE("chunks come as they are wished for", "[memory][device][private]") {
  device d;
  mr_allocator memory{d.pd,
                      {.chunk_bytes = 4u << 20,
                       .chunk_bytes_max = 4u << 20,
                       .huge_pages = true,
                       .numa_node = 0,
                       .prefault = true,
                       .thread_caches = false}};
  std::vector<local_mr> kept;
  for (int n = 0; n < 3; ++n) kept.push_back(memory.allocate_uninitialized(3u << 20));
  CHECK(memory.statistics().chunks == 3);
  CHECK(memory.statistics().registered_bytes == 12u << 20);
  kept.clear();
  memory.trim();
  CHECK(memory.statistics().registered_bytes == 0);
}

TEST_CASE("an allocator that goes before its memory is a broken contract", "[memory][device]") {
  const support::death seen = support::run_in_child([] {
    device d;
    auto memory = std::make_unique<mr_allocator>(d.pd);
    const local_mr mr = memory->allocate_uninitialized(64);
    memory.reset();
  });
  CHECK(seen.aborted);
  CHECK_THAT(seen.text, Catch::Contains("destroyed while memory of it is in use"));
}

namespace {

/// Threads allocate, write, check, hand on and free at random.
void stress(mr_allocator& memory, unsigned thread_count, std::uint64_t steps, std::uint64_t seed) {
  std::mutex mutex;
  std::vector<local_mr> handed;
  std::atomic<bool> mangled{false};
  const auto work = [&](unsigned which) {
    std::mt19937_64 random{seed + which};
    std::vector<local_mr> mine;
    const auto take_last = [](std::vector<local_mr>& from) {
      local_mr mr = std::move(from.back());
      from.pop_back();
      return mr;
    };
    for (std::uint64_t n = 0; n < steps; ++n) {
      switch (random() % 4) {
        case 0:
        case 1: {
          const std::size_t most = random() % 100 == 0 ? 200'000 : 2000;
          const bool zeroed = random() % 2 == 0;
          const std::size_t size = 1 + random() % most;
          local_mr mr = zeroed ? memory.allocate_zeroed(size) : memory.allocate_uninitialized(size);
          if (zeroed && mr.bytes().back() != std::byte{0}) mangled = true;
          mr.bytes().front() = mr.bytes().back() = std::byte(size);
          mine.push_back(std::move(mr));
          break;
        }
        case 2: {
          const std::lock_guard lock{mutex};
          if (!mine.empty() && handed.size() < 1000)
            handed.push_back(take_last(mine));
          else if (!handed.empty())
            mine.push_back(take_last(handed));
          break;
        }
        default: {
          if (mine.empty()) break;
          std::swap(mine[random() % mine.size()], mine.back());
          const local_mr mr = take_last(mine);
          const auto mark = std::byte(mr.size_bytes());
          if (mr.bytes().front() != mark || mr.bytes().back() != mark) mangled = true;
        }
      }
      if (mine.size() > 2000) mine.clear();
      if (random() % 50'000 == 0) memory.trim();
    }
  };
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < thread_count; ++t) threads.emplace_back(work, t);
  for (std::thread& thread : threads) thread.join();
  CHECK_FALSE(mangled);
}

void stress_all(std::uint64_t steps, std::uint64_t seed) {
  device d;
  const long before = registrations_left();
  {
    mr_allocator memory{d.pd};
    stress(memory, 4, steps, seed);
    CHECK(memory.statistics().in_use_bytes == 0);
    memory.trim();
    CHECK(memory.statistics().registered_bytes == 0);
  }
  CHECK(registrations_left() == before);
}

}  // namespace

TEST_CASE("four threads allocate, hand on and free, and nothing is left",
          "[memory][device][M6][private]") {
  stress_all(20'000, 1);
}

TEST_CASE("four threads allocate, hand on and free a million times each",
          "[.soak-memory][device]") {
  stress_all(test::soak::count(1'000'000), test::soak::seed());
}
