// A histogram of numbers that many ranks have. Each rank owns a range of the values. It sorts its
// numbers into one bucket for each rank, `all_to_all` exchanges the buckets, and the rank counts
// what came to its range. A reduction checks that no number got lost. Usage:
// 14_histogram [DEVICE [NUMBERS]], as one rank of several: see 13_ring_hello.cpp.

#include <cordma/cordma.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <numeric>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

constexpr std::uint32_t values_per_rank = 4;

/// Numbers near the middle of the range are frequent. Each rank has others.
std::vector<std::uint32_t> random_numbers(const cordma::group& g, std::size_t count) {
  std::mt19937 random{g.rank()};
  std::binomial_distribution<std::uint32_t> value{g.size() * values_per_rank - 1, 0.5};
  std::vector<std::uint32_t> numbers(count);
  for (std::uint32_t& n : numbers) n = value(random);
  return numbers;
}

/// Gives each number to the rank that owns the value. Returns those that came to this rank.
cordma::task<std::vector<std::uint32_t>> swap_buckets(cordma::group& g,
                                                      std::span<const std::uint32_t> numbers) {
  std::vector<std::vector<std::uint32_t>> buckets(g.size());
  for (const std::uint32_t n : numbers) buckets[n / values_per_rank].push_back(n);

  // A rank knows how many bytes it sends to each; what it gets, the others tell it.
  std::vector<std::size_t> sent, received(g.size());
  for (const auto& bucket : buckets) sent.push_back(bucket.size() * sizeof(std::uint32_t));
  co_await g.all_to_all<std::size_t>(sent, received);

  cordma::mr_allocator& memory = g.runtime().memory();
  cordma::local_mr out = memory.allocate_zeroed(numbers.size_bytes());
  cordma::local_mr in = memory.allocate_zeroed(std::reduce(received.begin(), received.end()));
  auto next = out.slice().as<std::uint32_t>().begin();
  for (const auto& bucket : buckets) next = std::ranges::copy(bucket, next).out;
  co_await g.all_to_all_uneven(out.slice(), sent, in.slice(), received);
  const auto came = in.slice().as<std::uint32_t>();
  co_return std::vector<std::uint32_t>(came.begin(), came.end());
}

cordma::task<> count(cordma::runtime& rt, std::size_t numbers) {
  cordma::group g = co_await cordma::group::join(rt);
  std::array<std::uint64_t, values_per_rank> counts{};
  const std::vector<std::uint32_t> mine = random_numbers(g, numbers);
  const std::vector<std::uint32_t> owned = co_await swap_buckets(g, mine);
  for (const std::uint32_t n : owned) ++counts.at(n - g.rank() * values_per_rank);

  std::vector<std::uint64_t> all(g.size() * values_per_rank);
  co_await g.all_gather<std::uint64_t>(counts, all);
  std::array total{std::reduce(counts.begin(), counts.end())};
  co_await g.all_reduce<std::uint64_t>(total, cordma::reduction::sum);
  if (total[0] != numbers * g.size()) throw std::runtime_error{"numbers got lost"};

  if (g.rank() == 0) {
    const std::uint64_t most = *std::ranges::max_element(all);
    for (std::size_t value = 0; value < all.size(); ++value) {
      const std::string bar(all[value] * 50 / std::max<std::uint64_t>(most, 1), '#');
      std::printf("%3zu %8llu %s\n", value, static_cast<unsigned long long>(all[value]),
                  bar.c_str());
    }
    std::printf("%llu numbers of %u ranks, none lost\n", static_cast<unsigned long long>(total[0]),
                g.size());
  }
  co_await g.leave();
}

}  // namespace

int main(int argc, char** argv) try {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);  // Line by line, also into a pipe.
  cordma::runtime rt{{.device = argc > 1 ? argv[1] : ""}};
  rt.run(count(rt, argc > 2 ? std::strtoul(argv[2], nullptr, 10) : 100'000));
} catch (const std::exception& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
