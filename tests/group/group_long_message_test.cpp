#include "ranks.hpp"
#include "support/device.hpp"
#include "support/soak.hpp"

#include <catch2/catch.hpp>

#include <cstdint>
#include <cstring>

using namespace cordma;
using test::expect;
using test::ranks;

namespace {

constexpr std::size_t page = 4096;

/// Writes a number that depends on page and rank to the start of each page.
void mark(std::span<std::byte> bytes, std::uint64_t rank) {
  for (std::size_t at = 0; at + 8 <= bytes.size(); at += page) {
    const std::uint64_t number = at * 2654435761 + rank;
    std::memcpy(&bytes[at], &number, sizeof number);
  }
}

bool is_marked(std::span<const std::byte> bytes, std::uint64_t rank) {
  for (std::size_t at = 0; at + 8 <= bytes.size(); at += page) {
    const std::uint64_t number = at * 2654435761 + rank;
    if (std::memcmp(&bytes[at], &number, sizeof number) != 0) return false;
  }
  return true;
}

}  // namespace

// Five GiB: beyond what 32 bits can say.
TEST_CASE("two ranks broadcast and gather messages beyond 4 GiB", "[.soak-long-messages][device]") {
  const std::size_t gibibytes = test::is_soft() ? test::soak::count(5) : 0;
  const std::size_t size = (gibibytes << 30) + 2 * page;
  ranks all{2};
  const std::string wrong = all.run([size](group& g) -> task<> {
    local_mr memory = g.runtime().memory().allocate_uninitialized(size);
    if (g.rank() == 1) mark(memory.bytes(), 1);
    co_await g.broadcast(memory.slice(), 1);
    expect(is_marked(memory.bytes(), 1), "the root's bytes");

    const local_mr_slice own = memory.slice(g.rank() * (size / 2), size / 2);
    mark(own.bytes(), 2 + g.rank());
    co_await g.all_gather(own, memory.slice());
    for (unsigned r = 0; r < 2; ++r)
      expect(is_marked(memory.slice(r * (size / 2), size / 2).bytes(), 2 + r), "the blocks");
  });
  CHECK(wrong == "");
}
