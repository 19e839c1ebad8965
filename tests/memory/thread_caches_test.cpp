#include "../../lib/memory/thread_caches.hpp"

#include "../../lib/memory/jemalloc.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <array>
#include <deque>
#include <iterator>
#include <optional>
#include <thread>
#include <vector>

using namespace cordma;

namespace {

constexpr int arena = MALLOCX_ARENA(0);
constexpr int none = arena | MALLOCX_TCACHE_NONE;

memory_block::kind kind_of_test() {
  return {nullptr, verbs::access::none, [](memory_block&, void*) noexcept {}, nullptr};
}

}  // namespace

TEST_CASE("each thread has a cache of each allocator, and the next thread gets it", "[memory]") {
  thread_caches one{arena, true, kind_of_test()};
  thread_caches other{arena, true, kind_of_test()};
  thread_cache* const mine = &one.mine();
  CHECK(&other.mine() != mine);
  CHECK(&one.mine() == mine);
  CHECK(one.mine().flags() != other.mine().flags());
  std::array<thread_cache*, 2> theirs{};
  for (auto& cache : theirs) std::thread{[&] { cache = &one.mine(); }}.join();
  CHECK(theirs[0] != mine);
  CHECK(theirs[1] == theirs[0]);
}

TEST_CASE("a cache outlives neither its allocator nor a thread that ends after it", "[memory]") {
  std::optional<thread_caches> gone{std::in_place, arena, true, kind_of_test()};
  thread_caches stays{arena, true, kind_of_test()};
  std::thread{[&] {
    CHECK_FALSE(gone->mine().flags() == stays.mine().flags());
    gone.reset();
    gone.emplace(arena, true, kind_of_test());  // The address is the same, the allocator another.
    gone->mine().count(1);
    CHECK(gone->in_use_bytes() == 1);
    CHECK_FALSE(gone->mine().flags() == stays.mine().flags());
    gone.reset();
  }}.join();
}

TEST_CASE("who frees after the end of its thread's objects goes without a cache", "[memory]") {
  thread_caches caches{arena, true, kind_of_test()};
  std::optional<int> flags;
  struct late {
    ~late() { *seen = caches->mine().flags(); }
    thread_caches* caches = nullptr;
    std::optional<int>* seen = nullptr;
  };
  std::thread{[&] {
    // Made before the cache's, so destroyed after it.
    thread_local late at_end;
    at_end.caches = &caches;
    at_end.seen = &flags;
    CHECK(caches.mine().flags() != none);
  }}.join();
  CHECK(flags == none);
}

TEST_CASE("without caches all threads share one, which counts for all", "[memory]") {
  thread_caches caches{arena, false, kind_of_test()};
  CHECK(caches.mine().flags() == none);
  caches.mine().count(100);
  std::thread{[&] { caches.mine().count(-40); }}.join();
  CHECK(caches.in_use_bytes() == 60);
}

TEST_CASE("when a process has no more caches, calls go without, until there are some again",
          "[memory]") {
  std::deque<thread_caches> all;
  const auto has_one = [](thread_caches& of) { return of.mine().flags() != none; };
  while (has_one(all.emplace_back(arena, true, kind_of_test())))
    REQUIRE(all.size() <= thread_caches::process_max);
  CHECK(all.size() > thread_caches::process_max - 100);  // Other tests have some.
  all.back().mine().count(1);
  CHECK(all.back().in_use_bytes() == 1);
  all.clear();
  thread_caches again{arena, true, kind_of_test()};
  CHECK(has_one(again));
}

TEST_CASE("what one thread counts up another may count down", "[memory]") {
  thread_caches caches{arena, true, kind_of_test()};
  caches.mine().count(100);
  std::thread{[&] { caches.mine().count(-100); }}.join();
  CHECK(caches.in_use_bytes() == 0);
}

TEST_CASE("blocks travel between threads, and each is one thread's at a time", "[memory]") {
  thread_caches caches{arena, true, kind_of_test()};
  std::vector<memory_block*> taken;
  for (int n = 0; n < 1000; ++n) taken.push_back(&caches.mine().take_block());
  std::thread{[&] {
    for (memory_block* block : taken) caches.mine().give_back(*block);
  }}.join();
  std::vector<memory_block*> again;
  for (int n = 0; n < 1000; ++n) again.push_back(&caches.mine().take_block());
  std::ranges::sort(taken);
  std::ranges::sort(again);
  std::vector<memory_block*> twice;
  std::ranges::set_intersection(again, taken, std::back_inserter(twice));
  CHECK(twice.size() > 900);  // The thread's cache held other blocks, too.
  CHECK(std::ranges::adjacent_find(again) == again.end());
  for (memory_block* block : again) caches.mine().give_back(*block);
}

namespace {

/// Gives a piece that was in use: nothing but its block is looked at.
memory_block& free_piece(thread_caches& of, std::size_t size) {
  memory_block& block = of.mine().take_block();
  block.begin(jemalloc::mallocx(thread_cache::room(size), of.mine().flags()), size);
  return block;
}

int keep_all_of(thread_caches& of, std::size_t size) {
  int kept = 0;
  for (;; ++kept) {
    memory_block& block = free_piece(of, size);
    if (of.mine().keep_piece(block)) continue;
    jemalloc::dallocx(block.address(), of.mine().flags());
    of.mine().give_back(block);
    return kept;
  }
}

}  // namespace

TEST_CASE("a piece takes the place of another of as many lines", "[memory]") {
  thread_caches caches{arena, true, kind_of_test()};
  memory_block& two_lines = free_piece(caches, 128);
  CHECK(caches.mine().keep_piece(two_lines));
  CHECK(caches.mine().take_piece(64) == nullptr);
  CHECK(caches.mine().take_piece(129) == nullptr);
  std::thread{[&] { CHECK(caches.mine().take_piece(128) == nullptr); }}.join();
  CHECK(caches.mine().take_piece(65) == &two_lines);
  CHECK(caches.mine().take_piece(65) == nullptr);

  CHECK(keep_all_of(caches, 4096) == 16);
  caches.flush();
  CHECK(caches.mine().take_piece(4096) == nullptr);
}

TEST_CASE("above 4 KiB a piece takes the place of another of the same quarter of a doubling",
          "[memory]") {
  thread_caches caches{arena, true, kind_of_test()};
  memory_block& five_kib = free_piece(caches, 4097);
  CHECK(caches.mine().keep_piece(five_kib));
  CHECK(caches.mine().take_piece(4096) == nullptr);
  CHECK(caches.mine().take_piece(5 * 1024 + 1) == nullptr);
  REQUIRE(caches.mine().take_piece(5 * 1024) == &five_kib);
  five_kib.begin(five_kib.address(), 5 * 1024);
  CHECK(caches.mine().keep_piece(five_kib));

  CHECK(keep_all_of(caches, 4097) == 3);
  CHECK(keep_all_of(caches, 64 * 1024) == 4);
  CHECK(keep_all_of(caches, 64 * 1024 + 1) == 1);
  CHECK(keep_all_of(caches, 1024 * 1024) == 1);
  CHECK(keep_all_of(caches, 1024 * 1024 + 1) == 0);
  caches.flush();
  for (const std::size_t size : {4097UL, 64 * 1024UL, 64 * 1024 + 1UL, 1024 * 1024UL})
    CHECK(caches.mine().take_piece(size) == nullptr);
}

TEST_CASE("every size has room, and what has the same room is kept together", "[memory]") {
  std::size_t last = 0;
  std::size_t rooms = 0;
  for (std::size_t size = 1; size <= 1025 * 1024; ++size) {
    const std::size_t room = thread_cache::room(size);
    // One condition: a million assertions take longer than all that they check.
    if (room < size || room < last || thread_cache::room(room) != room) FAIL(size << ": " << room);
    rooms += room != last ? 1 : 0;
    last = room;
  }
  CHECK(rooms == 64 + 32 + 16);  // The rooms grow by lines, by quarters, and by lines.
  thread_caches caches{arena, true, kind_of_test()};
  for (std::size_t size = 4097; size <= 1024 * 1024; size += size / 64) {
    // A piece as large as can be takes the place of all that it has room for.
    memory_block& piece = free_piece(caches, size);
    REQUIRE(caches.mine().keep_piece(piece));
    REQUIRE(caches.mine().take_piece(thread_cache::room(size)) == &piece);
    jemalloc::dallocx(piece.address(), caches.mine().flags());
    caches.mine().give_back(piece);
  }
}

TEST_CASE("who has no cache of its own keeps no piece", "[memory]") {
  thread_caches caches{arena, false, kind_of_test()};
  memory_block& block = caches.mine().take_block();
  block.begin(nullptr, 64);
  CHECK_FALSE(caches.mine().keep_piece(block));
  CHECK(caches.mine().take_piece(64) == nullptr);
  caches.mine().give_back(block);
}
