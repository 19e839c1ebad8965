#include "group/trial.hpp"

#include <catch2/catch.hpp>

#include <set>

using namespace cordma;
using namespace cordma::detail;
using model::trial;

namespace {

/// One number a rank, of which each order of addition makes another sum.
std::vector<float> numbers_of(unsigned ranks) {
  std::minstd_rand random{ranks};
  std::vector<float> numbers;
  for (unsigned rank = 0; rank < ranks; ++rank)
    numbers.push_back(float(random()) * (rank % 2 == 0 ? 1e-6f : -1e-7f));
  return numbers;
}

/// Adds the different elements of the ranks' results to a set.
void add(std::set<std::vector<std::byte>>& elements, const trial& t, const algorithm_table& table) {
  for (const std::vector<std::byte>& result : results_of(t, table))
    for (auto at = result.begin(); at != result.end(); at += sizeof(float))
      elements.emplace(at, at + sizeof(float));
}

}  // namespace

TEST_CASE("a reproducible sum depends on the number of ranks only", "[group]") {
  std::vector<std::uint64_t> pairs;
  for (unsigned rank = 0; rank < 17; ++rank) pairs.push_back(rank / 2);
  bool differs = false;
  for (unsigned ranks = 2; ranks <= 17; ++ranks) {
    const std::vector<float> numbers = numbers_of(ranks);
    const host_map hosts{std::span{pairs}.first(ranks)};
    std::set<std::vector<std::byte>> sums;
    std::set<std::vector<std::byte>> others;
    for (const char* const changes :
         {"segment=64", "segment=256 all_reduce=rabenseifner reduce=rabenseifner",
          "all_reduce=ring reduce_scatter=ring reduce=binomial segment=64"}) {
      const algorithm_table table{changes};
      for (const collective_kind kind : {collective_kind::reduce, collective_kind::all_reduce,
                                         collective_kind::reduce_scatter}) {
        for (const std::size_t elements : {1u, 3u, 50u}) {
          trial t{.kind = kind,
                  .ranks = ranks,
                  .elements = elements,
                  .root = unsigned(elements) % ranks,
                  .is_reproducible = true,
                  .type = element_type::float32,
                  .hosts = elements == 3 ? nullptr : &hosts,
                  .values = numbers};
          add(sums, t, table);
          t.is_reproducible = false;
          add(others, t, table);
        }
      }
    }
    CHECK(sums.size() == 1);
    differs = differs || others.size() > 1;
  }
  CHECK(differs);
}

TEST_CASE("a scan is the same whatever its length", "[group]") {
  const std::vector<float> numbers = numbers_of(11);
  const algorithm_table table{"segment=64"};
  const auto scan_of = [&](std::size_t elements) {
    const trial t{.kind = collective_kind::scan,
                  .ranks = 11,
                  .elements = elements,
                  .is_reproducible = true,
                  .type = element_type::float32,
                  .values = numbers};
    return results_of(t, table);
  };
  const auto single = scan_of(1);
  const auto many = scan_of(60);
  for (unsigned rank = 0; rank < 11; ++rank)
    for (std::size_t i = 0; i < many[rank].size(); i += sizeof(float))
      CHECK(std::equal(single[rank].begin(), single[rank].end(),
                       many[rank].begin() + std::ptrdiff_t(i)));
}
