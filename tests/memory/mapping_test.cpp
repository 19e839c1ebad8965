#include "../../lib/memory/mapping.hpp"

#include "support/aborts.hpp"
#include "support/allocations.hpp"
#include "support/mappings.hpp"
#include "support/skip.hpp"

#include <cordma/base/error.hpp>

#include <sys/mman.h>
#include <sys/resource.h>
#include <catch2/catch.hpp>

#include <cstdio>
#include <string>

using namespace cordma;

namespace {

constexpr std::size_t part = std::size_t{2} << 20;

/// Part after part, so that each of them has some on both sides.
struct parts {
  mapping space{8 * part, part};
  [[nodiscard]] std::byte* at(std::size_t n) const { return space.base() + n * part; }
};

std::string refusal_of(parts& p, std::size_t n) {
  try {
    p.space.commit(p.at(n), part, {});
  } catch (const error& e) {
    return e.what();
  }
  return "committed";
}

}  // namespace

TEST_CASE("memory comes and goes in a mapping, zeroed each time", "[memory]") {
  parts p;
  for (int round = 0; round < 2; ++round) {
    p.space.commit(p.at(1), part, {});
    CHECK(*p.at(1) == std::byte{0});
    *p.at(1) = std::byte{1};
    CHECK(test::is_resident(p.at(1)));
    p.space.decommit(p.at(1), part);
    CHECK_FALSE(test::is_resident(p.at(1)));
  }
}

TEST_CASE("in a scope of spare memory, a mapping leaves zeroed memory to the next one",
          "[memory]") {
  detail::spare_memory spare;
  const std::byte* first = nullptr;
  for (int round = 0; round < 2; ++round) {
    const detail::spare_memory_scope scope{spare};
    parts p;
    p.space.commit(p.at(1), part, {});
    CHECK(test::is_resident(p.at(1)) == (round == 1));
    CHECK(*p.at(1) == std::byte{0});
    *p.at(1) = std::byte{1};
    if (round == 0) first = p.at(1);
    CHECK(p.at(1) == first);
    p.space.decommit(p.at(1), part);
  }
  CHECK(parts{}.at(1) != first);
  CHECK(::munmap(spare.take(9 * part), 9 * part) == 0);
}

TEST_CASE("a mapping gives memory back at each limit of the process", "[memory]") {
  // A sanitizer maps memory of its own all the time.
  if (!support::counts_allocations()) CORDMA_SKIP("a sanitizer needs addresses of its own");
  const support::death seen = support::run_in_child([] {
    parts p;
    p.space.commit(p.at(1), 5 * part, {});
    for (std::size_t n = 1; n < 6; ++n) *p.at(n) = std::byte{1};
    const rlimit none{1, RLIM_INFINITY};
    const rlimit any{RLIM_INFINITY, RLIM_INFINITY};
    ::setrlimit(RLIMIT_AS, &none);
    p.space.decommit(p.at(2), part);
    const bool some_left = test::is_resident(p.at(2));
    p.space.commit(p.at(2), part, {});
    const bool is_zero = *p.at(2) == std::byte{0};
    ::setrlimit(RLIMIT_AS, &any);
    test::all_mappings all;
    p.space.decommit(p.at(4), part);
    all.fill();
    std::fprintf(stderr, "%d %d %d %d; %s", some_left, is_zero, all.are_taken(),
                 test::is_resident(p.at(4)), refusal_of(p, 7).c_str());
    all.end();
    if (refusal_of(p, 7) == "committed" && *p.at(4) == std::byte{0})
      std::fputs(", later had", stderr);
  });
  CHECK(seen.text ==
        "0 1 1 0; mprotect(bytes 0x200000): Cannot allocate memory: this process may have no more "
        "mappings: raise vm.max_map_count (sysctl), later had");
}
