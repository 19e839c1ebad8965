#include "group/trial.hpp"

#include <catch2/catch.hpp>

using namespace cordma;
using namespace cordma::detail;

namespace {

/// Returns what is wrong with an operation by two levels, on hosts that hold these ranks.
std::string problem_on(const std::vector<std::uint64_t>& hosts, collective_kind kind) {
  const host_map map{hosts};
  // Levels of several segments, with algorithms of several parts.
  const algorithm_table table{
      "reduce=two_level all_reduce=two_level all_gather=two_level "
      "broadcast=two_level broadcast=scatter_all_gather "
      "reduce=rabenseifner all_reduce=rabenseifner segment=64"};
  const auto ranks = unsigned(hosts.size());
  for (const std::size_t elements : {0u, 1u, 33u, 100u}) {
    for (unsigned root = 0; root < ranks; ++root) {
      const model::trial t{.kind = kind,
                           .ranks = ranks,
                           .elements = elements,
                           .root = root,
                           .is_aliased = root % 2 == 1,
                           .hosts = &map,
                           .seed = root + 1};
      if (std::string problem = problem_of(t, table); !problem.empty()) return problem;
    }
  }
  return {};
}

}  // namespace

TEST_CASE("operations by two levels are right, whichever ranks share a host", "[group]") {
  const auto kind =
      GENERATE(collective_kind::barrier, collective_kind::broadcast, collective_kind::reduce,
               collective_kind::all_reduce, collective_kind::all_gather);
  CHECK(problem_on({1, 1, 2, 2}, kind) == "");
  CHECK(problem_on({5, 5, 5, 3, 3, 3, 4, 4, 4}, kind) == "");
  CHECK(problem_on({7, 8, 9, 7, 8, 9, 7, 8}, kind) == "");
  CHECK(problem_on({1, 2, 2, 2, 2, 3, 3}, kind) == "");
}

TEST_CASE("each level sends few messages between hosts", "[group]") {
  const std::vector<std::uint64_t> hosts{1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4};
  const host_map map{hosts};
  const algorithm_table table;
  const reducer reduction = reducer_of(element_type::int32, reduction::sum);
  model::byte_memory memory{&reduction};
  model::model_group group{16, 1, memory, &map};
  std::vector<collective_call> calls(16);
  for (collective_call& call : calls) {
    call.kind = collective_kind::all_reduce;
    call.in = call.out = memory.allocate(64);
    call.reduction = &reduction;
  }
  group.run(calls, table);
  for (unsigned rank = 0; rank < 16; ++rank) {
    const auto is_far = [&](unsigned peer) { return map.host_of(peer) != map.host_of(rank); };
    const auto far = std::ranges::count_if(group.of(rank).peers(), is_far);
    CHECK(far == (rank % 4 == 0 ? 2 : 0));
  }
}
