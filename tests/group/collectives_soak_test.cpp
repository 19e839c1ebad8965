#include "group/trial.hpp"
#include "support/soak.hpp"

#include <catch2/catch.hpp>

using namespace cordma;
using namespace cordma::detail;

namespace {

/// Returns what is wrong with operations at random, each on up to 40 ranks; empty: nothing.
std::string problem_of_operations(std::uint64_t count, std::uint64_t seed) {
  std::mt19937_64 random{seed};
  const auto below = [&](std::size_t end) { return std::size_t(random() % end); };
  for (; count > 0; --count) {
    const algorithm& a = algorithms()[below(algorithms().size())];
    const std::string name = std::string{to_string(a.kind)} + '=' + a.name;
    const algorithm_table table{name + " segment=" + std::to_string(64 + below(200))};
    const unsigned ranks = 1 + unsigned(below(40));
    std::vector<std::uint64_t> numbers;
    const std::size_t hosts = 1 + below(ranks);
    for (unsigned rank = 0; rank < ranks; ++rank)
      numbers.push_back(below(2) ? rank * hosts / ranks : below(hosts));
    const host_map map{numbers};
    model::trial t{.kind = a.kind,
                   .ranks = ranks,
                   .elements = below(300),
                   .root = unsigned(below(ranks)),
                   .is_aliased = below(2) != 0,
                   .is_reproducible = below(4) == 0,
                   .type = element_type(below(element_types)),
                   .operation = reduction(below(4)),
                   .hosts = &map,
                   .seed = unsigned(random())};
    t.is_uneven =
        a.takes_uneven && below(2) != 0 && !(t.is_aliased && a.kind == collective_kind::all_to_all);
    if (t.operation == reduction::product) t.type = element_type::int64;
    if (std::string problem = problem_of(t, table); !problem.empty()) return problem;
  }
  return {};
}

}  // namespace

TEST_CASE("operations at random are right", "[group][.soak-collectives]") {
  CHECK(problem_of_operations(test::soak::count(100'000), test::soak::seed()) == "");
}
TEST_CASE("some operations at random are right", "[group]") {
  CHECK(problem_of_operations(60, 20261130) == "");
}
