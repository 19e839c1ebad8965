#include "group/trial.hpp"

#include <catch2/catch.hpp>

using namespace cordma;
using namespace cordma::detail;
using model::trial;

namespace {

/// Calls `check` with each algorithm, and a table that runs it wherever it can run.
template <class Check>
void for_each_algorithm(Check check) {
  for (const algorithm& a : algorithms()) {
    const std::string name = std::string{to_string(a.kind)} + '=' + a.name;
    CAPTURE(name);
    check(a, algorithm_table{name + ", segment=64"});
  }
}

const std::vector<std::uint64_t> shared_hosts{1, 1, 2, 2, 3, 3};
const host_map pairs_of_hosts{shared_hosts};

bool is_reduction(const algorithm& a) {
  using enum collective_kind;
  return a.kind == collective_kind::reduce || a.kind == all_reduce || a.kind == reduce_scatter ||
         a.kind == scan;
}

/// Keeps the element with the lower first byte; of equal ones, the left one.
void keep_lower(std::byte* into, const std::byte* left, const std::byte* right, std::size_t count,
                const void* /*user*/) noexcept {
  for (std::size_t i = 0; i < 2 * count; i += 2) {
    const std::byte* const kept = right[i] < left[i] ? right + i : left + i;
    const std::array<std::byte, 2> value{kept[0], kept[1]};
    into[i] = value[0];
    into[i + 1] = value[1];
  }
}

}  // namespace

TEST_CASE("a reduction by each algorithm is right for all types and operations", "[group]") {
  for_each_algorithm([](const algorithm& a, const algorithm_table& table) {
    if (!is_reduction(a)) return;
    for (int type = 0; type < element_types; ++type)
      for (int operation = 0; operation < (type < 8 ? reductions : 4); ++operation)
        CHECK(problem_of(trial{.kind = a.kind,
                               .ranks = 6,
                               .elements = 21,
                               .type = element_type(type),
                               .operation = reduction(operation),
                               .hosts = &pairs_of_hosts},
                         table) == "");
  });
}

TEST_CASE("a segment of a reduction has whole elements, on both sides", "[group]") {
  for (const algorithm& a : algorithms()) {
    if (!is_reduction(a)) continue;
    const algorithm_table table{std::string{to_string(a.kind)} + '=' + a.name + " segment=101"};
    for (const unsigned ranks : {3u, 6u})
      CHECK(problem_of(trial{.kind = a.kind,
                             .ranks = ranks,
                             .elements = 60,
                             .type = element_type::int64,
                             .hosts = ranks == 6 ? &pairs_of_hosts : nullptr},
                       table) == "");
  }
}

TEST_CASE("all ranks have the same result of an operation that only nearly commutes", "[group]") {
  const reducer lower{.combine = keep_lower, .element_bytes = 2};
  for_each_algorithm([&](const algorithm& a, const algorithm_table& table) {
    if (a.kind != collective_kind::all_reduce) return;
    for (unsigned ranks = 2; ranks <= 13; ++ranks) {
      // Many elements of few ranks have equal first bytes.
      const trial t{.kind = a.kind, .ranks = ranks, .elements = 900, .own = &lower};
      const auto results = results_of(t, table);
      for (unsigned rank = 1; rank < ranks; ++rank) CHECK(results[rank] == results[0]);
    }
  });
}

TEST_CASE("of two ranks, the lower one's operand is on the left", "[group]") {
  const reducer lower{.combine = keep_lower, .element_bytes = 2};
  for_each_algorithm([&](const algorithm& a, const algorithm_table& table) {
    if (!is_reduction(a)) return;
    for (const unsigned seed : {1u, 2u})
      CHECK(problem_of(
                trial{.kind = a.kind, .ranks = 2, .elements = 900, .own = &lower, .seed = seed},
                table) == "");
  });
}

TEST_CASE("a scan combines operands in the order of ranks", "[group]") {
  const reducer lower{.combine = keep_lower, .element_bytes = 2};
  const trial t{.kind = collective_kind::scan, .ranks = 11, .elements = 900, .own = &lower};
  CHECK(problem_of(t, algorithm_table{}) == "");
}

TEST_CASE("an operation that is destroyed gives up all that it has posted", "[group]") {
  for_each_algorithm([](const algorithm& a, const algorithm_table& table) {
    const trial t{.kind = a.kind,
                  .ranks = 6,
                  .elements = a.kind == collective_kind::all_to_all ? 40u : 100u,
                  .hosts = &pairs_of_hosts};
    CHECK(model::problem_of_destruction(t, table) == "");
  });
}

TEST_CASE("an operation that fails ends on all ranks, whatever it was waiting for", "[group]") {
  for_each_algorithm([](const algorithm& a, const algorithm_table& table) {
    const trial t{.kind = a.kind,
                  .ranks = 6,
                  .elements = a.kind == collective_kind::all_to_all ? 40u : 100u,
                  .root = 1,
                  .hosts = &pairs_of_hosts};
    CHECK(problem_of_failures(t, table) == "");
  });
}

TEST_CASE("a warm algorithm allocates nothing", "[group]") {
  if (!frame_cache::is_recycling || !support::counts_allocations()) {
    WARN("allocations are not counted here");
    return;
  }
  for_each_algorithm([](const algorithm& a, const algorithm_table& table) {
    const trial t{.kind = a.kind, .ranks = 6, .elements = 100, .hosts = &pairs_of_hosts};
    CHECK(model::allocations_of(t, table) == 0);
  });
}
