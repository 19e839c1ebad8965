// The connections and the memory of a rank, by the number of ranks, as docs/collectives.md has
// them.

#include "ranks.hpp"
#include "support/device.hpp"

#include <catch2/catch.hpp>

#include <bit>
#include <functional>
#include <string>
#include <vector>

using namespace cordma;
using test::ranks;

namespace {

/// Ranks that connect to many others are fewer.
constexpr unsigned few_ranks = 16;
constexpr unsigned many_ranks = 64;

unsigned log2_of(unsigned size) { return unsigned(std::bit_width(size)) - 1; }

/// The connections of each rank after one operation of ranks that had none.
std::vector<unsigned> connections_after(unsigned size, const std::string& algorithm,
                                        const std::function<task<>(group&)>& operation) {
  ranks all{size, {.receive_buffers = 16 * size, .algorithms = algorithm}};
  REQUIRE(all.run(operation) == "");
  std::vector<unsigned> connections;
  for (unsigned r = 0; r < size; ++r)
    connections.push_back(unsigned(all[r].counters().connections));
  return connections;
}

/// Runs an operation on 8, 16 ... ranks, and checks each rank's connections.
void check_connections(unsigned size_max, const std::string& algorithm,
                       const std::function<task<>(group&)>& operation,
                       const std::function<unsigned(unsigned rank, unsigned size)>& expected) {
  // Where each connection takes the kernel long, the smallest number shows the same.
  const unsigned most = test::is_rxe() ? 8 : size_max;
  for (unsigned size = 8; size <= most; size *= 2) {
    std::vector<unsigned> each;
    for (unsigned r = 0; r < size; ++r) each.push_back(expected(r, size));
    CAPTURE(algorithm, size);
    CHECK(connections_after(size, algorithm, operation) == each);
  }
}

task<> sum_on_all(group& g, std::size_t elements) {
  local_mr values = g.runtime().memory().allocate_zeroed(elements * sizeof(float));
  co_await g.all_reduce<float>(values.slice(), values.slice(), reduction::sum);
}

task<> gather_on_all(group& g) {
  local_mr all = g.runtime().memory().allocate_zeroed(g.size() * std::size_t{8});
  co_await g.all_gather(all.slice(g.rank() * std::size_t{8}, 8), all.slice());
}

/// The partners at distances of powers of two, before and behind; half the ranks away is one.
unsigned before_and_behind(unsigned /*rank*/, unsigned size) { return 2 * log2_of(size) - 1; }

/// The parent in a binomial tree, and the children: as many as the rank has zeros at its end.
unsigned in_tree(unsigned rank, unsigned size) {
  return rank == 0 ? log2_of(size) : 1 + unsigned(std::countr_zero(rank));
}

}  // namespace

TEST_CASE("ranks that have met are not connected until a message goes", "[group][device]") {
  const auto nothing = [](group&) -> task<> { co_return; };
  check_connections(many_ranks, "", nothing, [](unsigned, unsigned) { return 0u; });
}

TEST_CASE("a barrier connects a rank to those at distances of powers of two", "[group][device]") {
  check_connections(many_ranks, "", [](group& g) { return g.barrier(); }, before_and_behind);
}

TEST_CASE("a small all_gather connects a rank as a barrier does", "[group][device]") {
  check_connections(few_ranks, "", gather_on_all, before_and_behind);
}

TEST_CASE("a small broadcast connects a rank to its parent and its children", "[group][device]") {
  const auto broadcast = [](group& g) -> task<> {
    local_mr data = g.runtime().memory().allocate_zeroed(8);
    co_await g.broadcast(data.slice(), 0);
  };
  check_connections(many_ranks, "", broadcast, in_tree);
}

TEST_CASE("a small all_reduce connects a rank to one partner in each step", "[group][device]") {
  check_connections(
      many_ranks, "", [](group& g) { return sum_on_all(g, 2); },
      [](unsigned, unsigned size) { return log2_of(size); });
}

TEST_CASE("a ring connects a rank to two", "[group][device]") {
  const auto two = [](unsigned, unsigned) { return 2u; };
  check_connections(many_ranks, "all_gather=ring", gather_on_all, two);
  check_connections(
      few_ranks, "all_reduce=ring", [](group& g) { return sum_on_all(g, g.size()); }, two);
}

TEST_CASE("a pairwise all_to_all connects a rank to all others", "[group][device]") {
  const auto exchange = [](group& g) -> task<> {
    local_mr in = g.runtime().memory().allocate_zeroed(g.size() * std::size_t{8});
    local_mr out = g.runtime().memory().allocate_zeroed(g.size() * std::size_t{8});
    co_await g.all_to_all(in.slice(), out.slice());
  };
  check_connections(few_ranks, "all_to_all=pairwise", exchange,
                    [](unsigned, unsigned size) { return size - 1; });
}

TEST_CASE("each end of a connection between ranks takes 2 KiB and a byte of registered memory",
          "[group][device]") {
  for (unsigned size = 8; size <= 32; size *= 2) {
    ranks all{size, {.receive_buffers = 16 * size}};
    const std::size_t before = all.rt().memory().statistics().in_use_bytes;
    REQUIRE(all.run([](group& g) { return g.barrier(); }) == "");
    const std::size_t now = all.rt().memory().statistics().in_use_bytes;
    const std::size_t ends = size * std::size_t{before_and_behind(0, size)};
    CHECK(now - before == ends * (2048 + 1));
  }
}
