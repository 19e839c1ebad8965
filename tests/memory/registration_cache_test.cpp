// The cache of registrations, as `mr_allocator::register_cached` shows it.
#include "memory/registration_cache.hpp"

#include "support/allocations.hpp"
#include "support/loopback.hpp"
#include "support/outcome.hpp"
#include "support/skip.hpp"
#include "support/verbs_faults.hpp"

#include <cordma/base/error.hpp>
#include <cordma/memory/mr_allocator.hpp>

#include <sys/mman.h>
#include <catch2/catch.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <deque>
#include <random>
#include <span>
#include <thread>
#include <utility>
#include <vector>

using namespace cordma;

namespace {

using buffer = std::vector<std::byte>;
constexpr std::size_t kib = 1024;

/// A device, and an allocator with a cache of these limits.
struct cached_memory {
  explicit cached_memory(std::size_t registrations_max, std::size_t bytes_max = 1024 * kib)
      : memory{pd,
               {.access = test::all_access,
                .cached_registrations_max = registrations_max,
                .cached_bytes_max = bytes_max}} {}

  [[nodiscard]] std::uint64_t registered() const { return memory.counters().registrations; }
  [[nodiscard]] std::size_t external() const { return memory.counters().external_bytes; }
  [[nodiscard]] std::size_t cached() const { return memory.counters().cached_bytes; }
  /// Tells whether the cache has a registration of the buffer, or makes one.
  bool knows(buffer& b) {
    const std::uint64_t before = registered();
    static_cast<void>(memory.register_cached(b));
    return registered() == before;
  }

  verbs::context ctx{test::device_name()};
  verbs::protection_domain pd{ctx};
  mr_allocator memory;
};

/// Memory that is unmapped before its end.
struct pages {
  pages()
      : at{static_cast<std::byte*>(
            ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))} {}
  pages(pages&&) = delete;
  ~pages() { unmap(); }
  void unmap() {
    if (is_mapped) ::munmap(at, size);
    is_mapped = false;
  }
  [[nodiscard]] std::span<std::byte> bytes() const { return {at, size}; }
  static constexpr std::size_t size = 8 * kib;
  std::byte* at;
  bool is_mapped = true;
};

}  // namespace

TEST_CASE("a buffer that was registered before is not registered again, nor is a part of it",
          "[memory][device][M12]") {
  test::loopback link;
  mr_allocator memory{link.pd, {.access = test::all_access}};
  buffer bytes(100 * kib);
  const std::uint64_t before = memory.counters().registrations;
  local_mr first = memory.register_cached(bytes);
  local_mr whole = memory.register_cached(bytes);
  local_mr part = memory.register_cached(std::span{bytes}.subspan(10 * kib, 20 * kib));
  const mr_allocator_counters now = memory.counters();
  CHECK(now.registrations == before + 1);
  CHECK(now.cache_misses == 1);
  CHECK(now.cache_hits == 2);
  CHECK(now.cached_bytes == bytes.size());
  CHECK(whole.slice().lkey() == first.slice().lkey());
  CHECK(part.bytes().data() == &bytes[10 * kib]);
  CHECK(part.size_bytes() == 20 * kib);
  const local_mr pattern = link.pattern(20 * kib);
  link.run(link.b->write(pattern, part.remote_slice()));
  local_mr seen = link.memory(20 * kib);
  link.run(link.a->write(whole.slice(10 * kib, 20 * kib), seen.remote_slice()));
  CHECK(test::same_bytes(seen.bytes(), pattern.bytes()));
  CHECK(memory.counters().registrations == now.registrations);
}

TEST_CASE("one byte beyond what is registered is another registration", "[memory][device][M12]") {
  cached_memory m{8};
  buffer bytes(4 * kib);
  const std::span<std::byte> all{bytes};
  static_cast<void>(m.memory.register_cached(all.subspan(1, 1000)));
  CHECK(m.registered() == 1);
  static_cast<void>(m.memory.register_cached(all.subspan(1, 1001)));
  CHECK(m.registered() == 2);
  static_cast<void>(m.memory.register_cached(all.subspan(0, 1000)));
  CHECK(m.registered() == 3);
  static_cast<void>(m.memory.register_cached(all.subspan(1, 999)));
  static_cast<void>(m.memory.register_cached(all.subspan(500, 502)));
  CHECK(m.registered() == 3);
  CHECK(test::failure_of([&] { static_cast<void>(m.memory.register_cached(all.first(0))); }).code ==
        errc::out_of_range);
}

TEST_CASE("the least recently used registration goes when another one needs room",
          "[memory][device][M12]") {
  cached_memory m{2};
  buffer a(kib), b(kib), c(kib);
  CHECK_FALSE(m.knows(a));
  CHECK_FALSE(m.knows(b));
  CHECK(m.knows(a));
  CHECK_FALSE(m.knows(c));
  CHECK(m.memory.counters().cache_evictions == 1);
  CHECK(m.external() == 2 * kib);
  CHECK(m.knows(a));
  CHECK(m.knows(c));
  CHECK_FALSE(m.knows(b));
}

TEST_CASE("the bytes of all registrations have a limit, and what is longer is not kept",
          "[memory][device][M12]") {
  cached_memory m{100, 10 * kib};
  buffer a(6 * kib), b(4 * kib), c(5 * kib), too_long(11 * kib);
  CHECK_FALSE(m.knows(a));
  CHECK_FALSE(m.knows(b));
  CHECK(m.cached() == 10 * kib);
  CHECK_FALSE(m.knows(too_long));
  CHECK(m.cached() == 10 * kib);
  CHECK(m.external() == 10 * kib);
  CHECK(m.knows(b));
  CHECK_FALSE(m.knows(c));  // In the place of `a`.
  CHECK(m.cached() == 9 * kib);
  CHECK(m.knows(b));
  CHECK_FALSE(m.knows(a));
}

TEST_CASE("a registration that is held stays, and one without room ends with its hold",
          "[memory][device][M12]") {
  cached_memory m{1};
  buffer a(kib), b(2 * kib);
  local_mr held = m.memory.register_cached(a);
  {
    local_mr guest = m.memory.register_cached(b);
    CHECK(guest.bytes().data() == b.data());
    CHECK(m.external() == 3 * kib);
    CHECK(m.cached() == kib);
    CHECK(m.memory.invalidate(b) == 1);
    CHECK(m.memory.invalidate(b) == 0);
    CHECK(test::failure_of([&] { static_cast<void>(local_mr::keep(guest.slice())); }).code ==
          errc::stale_slice);
    CHECK(m.external() == 3 * kib);
  }
  CHECK(m.external() == kib);
  CHECK(m.memory.counters().cache_evictions == 0);
  CHECK(m.knows(a));
  held.reset();
  CHECK_FALSE(m.knows(b));
  CHECK(m.external() == 2 * kib);
}

TEST_CASE("a registration without room takes nobody's place", "[memory][device][M12]") {
  cached_memory m{100, 10 * kib};
  buffer bytes(11 * kib);
  const std::span<std::byte> all{bytes};
  const local_mr held = m.memory.register_cached(all.first(2 * kib));
  static_cast<void>(m.memory.register_cached(all.subspan(4 * kib, 4 * kib)));
  CHECK(m.registered() == 2);
  const local_mr guest = m.memory.register_cached(all);
  CHECK(m.registered() == 3);
  CHECK(m.cached() == 6 * kib);
  CHECK(m.memory.counters().cache_evictions == 0);
  const local_mr again = m.memory.register_cached(all.first(2 * kib));
  CHECK(again.slice().lkey() == held.slice().lkey());
  static_cast<void>(m.memory.register_cached(all.subspan(4 * kib, 4 * kib)));
  CHECK(m.registered() == 3);
}

TEST_CASE("a registration for which what is held leaves no room evicts nothing",
          "[memory][device][M12]") {
  cached_memory m{100, 10 * kib};
  buffer a(8 * kib), b(kib), c(4 * kib), d(2 * kib);
  const local_mr held = m.memory.register_cached(a);
  CHECK_FALSE(m.knows(b));
  CHECK_FALSE(m.knows(c));
  CHECK(m.memory.counters().cache_evictions == 0);
  CHECK(m.cached() == 9 * kib);
  CHECK(m.knows(b));
  CHECK_FALSE(m.knows(d));  // In the place of `b`.
  CHECK(m.memory.counters().cache_evictions == 1);
  CHECK(m.cached() == 10 * kib);
}

TEST_CASE("a cache without room keeps nothing, and registers each time", "[memory][device][M12]") {
  cached_memory m{0};
  buffer a(kib);
  CHECK_FALSE(m.knows(a));
  CHECK_FALSE(m.knows(a));
  CHECK(m.external() == 0);
}

TEST_CASE("a request in flight holds its registration, invalidated or evicted",
          "[memory][device][M12]") {
  // One packet, and a long timer: an emulated rxe loses longer messages that wait for a receive.
  test::loopback link{{.min_rnr_timer = 28}};
  mr_allocator memory{link.pd, {.access = test::all_access, .cached_registrations_max = 1}};
  buffer a(512, std::byte{7}), b(kib);
  local_mr held = memory.register_cached(a);
  const local_mr_slice slice = held;
  auto sending = link.a->post(send(held));  // Waits for a receive.
  held.reset();
  static_cast<void>(memory.register_cached(b));
  CHECK(memory.counters().cache_evictions == 0);
  CHECK(memory.counters().external_bytes == a.size());
  CHECK(memory.invalidate(a) == 1);
  CHECK(memory.counters().external_bytes == a.size());
  CHECK(memory.counters().cached_bytes == 0);
  CHECK(test::code_of(link.outcome(link.a->send(slice))) == errc::stale_slice);
  local_mr target = link.memory(a.size());
  link.run(link.b->recv(target));
  link.run(sending);
  CHECK(test::same_bytes(target.bytes(), a));
  CHECK(memory.counters().external_bytes == 0);
}

TEST_CASE("invalidating any part of a registration makes its slices stale, held or not",
          "[memory][device][M12]") {
  test::loopback link;
  mr_allocator memory{link.pd, {.access = test::all_access}};
  buffer bytes(12 * kib);
  const std::span<std::byte> all{bytes};
  local_mr first = memory.register_cached(all.first(4 * kib));
  local_mr second = memory.register_cached(all.subspan(4 * kib, 4 * kib));
  static_cast<void>(memory.register_cached(all.last(4 * kib)));
  CHECK(memory.invalidate(all.subspan(4 * kib, 0)) == 0);
  CHECK(memory.invalidate(all.subspan(8 * kib - 1, 2)) == 1);  // The second is held, the last not.
  CHECK(memory.counters().cached_bytes == 4 * kib);
  CHECK(memory.counters().external_bytes == 8 * kib);
  local_mr target = link.memory(4 * kib);
  CHECK(test::code_of(link.outcome(link.a->write(second, target.remote_slice()))) ==
        errc::stale_slice);
  CHECK(link.run(link.a->write(first, target.remote_slice())) == 4 * kib);
  second.reset();
  CHECK(memory.counters().external_bytes == 4 * kib);
  local_mr again = memory.register_cached(all.subspan(4 * kib, 4 * kib));
  CHECK(link.run(link.a->write(again, target.remote_slice())) == 4 * kib);
  CHECK(memory.invalidate(all) == 2);
  CHECK(memory.invalidate(all) == 0);
}

TEST_CASE("a larger registration takes the place of what it covers, but for its holders",
          "[memory][device][M12]") {
  test::loopback link;
  mr_allocator memory{link.pd, {.access = test::all_access}};
  buffer bytes(12 * kib);
  const std::span<std::byte> all{bytes};
  local_mr held = memory.register_cached(all.first(4 * kib));
  static_cast<void>(memory.register_cached(all.subspan(2 * kib, 4 * kib)));
  static_cast<void>(memory.register_cached(all.last(4 * kib)));
  local_mr whole = memory.register_cached(all);
  CHECK(memory.counters().external_bytes == 16 * kib);
  CHECK(memory.counters().registrations == 4);
  const local_mr part = memory.register_cached(all.first(4 * kib));
  CHECK(part.slice().lkey() == whole.slice().lkey());
  local_mr target = link.memory(4 * kib);
  CHECK(link.run(link.a->write(held, target.remote_slice())) == 4 * kib);
  CHECK(memory.invalidate(all.first(1)) == 2);
  CHECK(test::code_of(link.outcome(link.a->write(held, target.remote_slice()))) ==
        errc::stale_slice);
}

TEST_CASE("what was registered to be written serves as constant, but not the other way round",
          "[memory][device][M12]") {
  test::loopback link;
  buffer a(kib), b(kib);
  const buffer& constant_a = a;
  const buffer& constant_b = b;
  using enum verbs::access;
  mr_allocator local{link.pd, {.access = local_write | remote_read}};
  const local_mr one = local.register_cached(a);
  CHECK(local.register_cached(constant_a).slice().lkey() == one.slice().lkey());
  CHECK(local.counters().cache_hits == 1);
  cached_memory m{8};
  const const_local_mr two = m.memory.register_cached(constant_b);
  CHECK(two.access() == verbs::access::remote_read);
  CHECK(m.registered() == 1);
  CHECK(m.memory.register_cached(b).access() == test::all_access);
  CHECK(m.registered() == 2);
}

TEST_CASE("constant memory never has the key of a registration that peers may write",
          "[memory][device][M12]") {
  test::loopback link;
  using enum verbs::access;
  const verbs::access by_peers = GENERATE(remote_write, remote_atomic);
  mr_allocator memory{link.pd, {.access = local_write | remote_read | by_peers}};
  buffer bytes(kib);
  const local_mr writable = memory.register_cached(bytes);
  const const_local_mr constant = memory.register_cached(std::as_const(bytes));
  CHECK(constant.access() == remote_read);
  CHECK(constant.slice().lkey() != writable.slice().lkey());
  CHECK(memory.register_cached(std::as_const(bytes)).slice().lkey() == constant.slice().lkey());
}

TEST_CASE("a device that is full gets back what nobody holds, and is asked once more",
          "[memory][device][M12]") {
  cached_memory m{8};
  buffer a(kib), b(kib), c(kib), d(kib);
  const local_mr held = m.memory.register_cached(a);
  CHECK_FALSE(m.knows(b));
  verbs_faults::fail_call(1, ENOMEM);
  CHECK_FALSE(m.knows(c));
  CHECK(m.memory.counters().registrations_failed == 1);
  CHECK(m.external() == 2 * kib);
  CHECK(m.knows(a));
  CHECK_FALSE(m.knows(b));
  // A buffer that is wrong drops nothing. A second lack of room is the error.
  verbs_faults::fail_call(1, EFAULT);
  CHECK(test::failure_of([&] { static_cast<void>(m.knows(d)); }).code == std::errc::bad_address);
  CHECK(m.external() == 3 * kib);
  verbs_faults::fail_call(1, ENOMEM, 2);
  CHECK(test::failure_of([&] { static_cast<void>(m.knows(d)); }).code ==
        std::errc::not_enough_memory);
  CHECK(m.external() == kib);
  verbs_faults::fail_call(0, 0);
}

TEST_CASE("requests on a cached registration whose memory was unmapped harm nothing",
          "[memory][device][M12]") {
  test::loopback link{{.capabilities = {.inline_max = 64}}};
  mr_allocator memory{link.pd, {.access = test::all_access}};
  local_mr target = link.memory(pages::size);
  for (const std::size_t size : {std::size_t{8}, pages::size}) {
    pages gone;
    local_mr held = memory.register_cached(gone.bytes());
    gone.unmap();
    const std::error_code how =
        test::code_of(link.outcome(link.a->write(held.first(size), target.remote_slice())));
    // A device that pins memory still reads what was there.
    if (test::is_soft())
      CHECK(how == wc_errc::local_protection);
    else
      CHECK_FALSE(how);
    CHECK(memory.invalidate(gone.bytes()) == 1);
    // New queue pairs may get those addresses.
    CHECK(test::failure_of([&] { static_cast<void>(memory.register_cached(gone.bytes())); }).code ==
          std::errc::bad_address);
    link.reconnect();
    CHECK(test::code_of(link.outcome(link.a->write(held.first(size), target.remote_slice()))) ==
          errc::stale_slice);
  }
  CHECK(memory.counters().external_bytes == 0);
}

TEST_CASE("trimming ends what nobody holds, and the allocator's end the rest",
          "[memory][device][M12]") {
  const auto live = [] {
    return verbs_faults::live_objects()[std::size_t(verbs_faults::kind::mr)];
  };
  const long before = live();
  {
    cached_memory m{8};
    buffer a(kib), b(kib);
    local_mr held = m.memory.register_cached(a);
    CHECK_FALSE(m.knows(b));
    CHECK(live() == before + 2);
    m.memory.trim();
    CHECK(live() == before + 1);
    CHECK(m.knows(a));
    held.reset();
    CHECK(live() == before + 1);
  }
  CHECK(live() == before);
}

TEST_CASE("a cached registration costs no malloc once warm", "[memory][device][M12]") {
  if (!support::counts_allocations()) CORDMA_SKIP("its malloc is not counted");
  test::loopback link;
  mr_allocator memory{link.pd, {.access = test::all_access}};
  std::deque<buffer> all(200, buffer(kib));
  local_mr target = link.memory(kib);
  const auto pass = [&] {
    for (buffer& one : all) {
      local_mr held = memory.register_cached(one);
      link.run(link.a->write(held, target.remote_slice()));
      const const_local_mr constant = memory.register_cached(std::as_const(one));
      link.run(link.a->write(constant, target.remote_slice()));
    }
  };
  pass();
  const std::uint64_t before = support::thread_allocation_count();
  pass();
  CHECK(support::thread_allocation_count() == before);
  CHECK(memory.counters().cache_misses == 2 * all.size());  // Peers may write only one of the two.
}

TEST_CASE("whatever is registered, held and invalidated, a hold covers what was asked for",
          "[memory][device][M12]") {
  constexpr std::size_t bytes_max = 200, registrations_max = 20;
  cached_memory m{registrations_max, bytes_max};
  buffer all(400);
  std::mt19937 random{20261129};
  const auto below = [&](std::size_t end) { return std::size_t(random() % end); };
  std::vector<local_mr> held;
  for (int step = 0; step < 5000; ++step) {
    const std::size_t at = below(all.size()), size = 1 + below(std::min(all.size() - at, 60ul));
    const std::span<std::byte> range = std::span{all}.subspan(at, size);
    switch (below(8)) {
      case 0: {
        const local_mr probe = m.memory.register_cached(range);
        m.memory.invalidate(range);
        memory_block* const block = probe.slice().block();
        REQUIRE(block->generation() != probe.slice().generation());
        break;
      }
      case 1:
      case 2:
        if (held.empty()) break;
        std::swap(held[below(held.size())], held.back());
        held.pop_back();
        break;
      default: {
        local_mr one = m.memory.register_cached(range);
        REQUIRE(one.bytes().data() == range.data());
        REQUIRE(one.size_bytes() == size);
        const memory_block* const block = one.slice().block();
        REQUIRE(block->generation() == one.slice().generation());
        const verbs::memory_region& mr = *block->registration();
        REQUIRE(mr.lkey() == one.slice().lkey());
        REQUIRE(mr.rkey() == one.remote_slice().rkey());
        REQUIRE(mr.address() <= range.data());
        REQUIRE(range.data() + size <= mr.address() + mr.length());
        if (held.size() < 10) held.push_back(std::move(one));
      }
    }
    REQUIRE(m.cached() <= bytes_max);
  }
  CHECK(m.memory.counters().cache_hits > 500);
  CHECK(m.memory.counters().cache_evictions > 500);
  held.clear();
  CHECK(m.external() == m.cached());
  m.memory.invalidate(all);
  CHECK(m.external() == 0);
  CHECK(m.cached() == 0);
}

TEST_CASE("threads share one cache", "[memory][device][M12]") {
  cached_memory m{6, 64 * kib};
  std::array<buffer, 8> shared;
  shared.fill(buffer(kib));
  const auto work = [&](unsigned seed) {
    std::mt19937 random{seed};
    buffer own(kib);
    bool is_right = true;
    for (int n = 0; n < 2000; ++n) {
      buffer& one = n % 10 == 0 ? own : shared[random() % shared.size()];
      const local_mr held = m.memory.register_cached(one);
      is_right = is_right && held.bytes().data() == one.data() && held.size_bytes() == kib;
      if (n % 50 == 0) m.memory.invalidate(own);
    }
    m.memory.invalidate(own);
    return is_right;
  };
  bool other_is_right = false;
  std::thread other{[&] { other_is_right = work(1); }};
  CHECK(work(2));
  other.join();
  CHECK(other_is_right);
  const mr_allocator_counters now = m.memory.counters();
  CHECK(now.cache_hits + now.cache_misses == 4000);
  CHECK(now.external_bytes == now.cached_bytes);
  CHECK(now.cached_bytes <= 6 * kib);
}
