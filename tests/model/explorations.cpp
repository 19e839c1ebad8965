#include "explorations.hpp"

#include <chrono>
#include <cstdlib>
#include <iostream>
#include <string_view>

namespace model {

namespace {

/// Random runs of an ordinary test; a campaign has a million of each scenario.
constexpr std::uint64_t few_runs = 10'000;

}  // namespace

std::string found_by(const exploration& one, std::uint64_t random_runs, std::uint64_t seed) {
  // NOLINTBEGIN(concurrency-mt-unsafe)
  const char* const only = std::getenv("CORDMA_MODEL_SCENARIO");
  const bool is_repeated = std::getenv("CORDMA_MODEL_CHOICES") != nullptr;
  // NOLINTEND(concurrency-mt-unsafe)
  if (only != nullptr && one.name != std::string_view{only}) return {};
  limits how = one.how;
  if (how.random_runs != 0) how.random_runs = random_runs;
  how.seed = seed;
  const auto begin = std::chrono::steady_clock::now();
  const outcome all = one.run(how);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  std::cout << one.name << ", " << how.threads << " threads, ";
  if (how.random_runs != 0)
    std::cout << "random orders";
  else if (how.preemptions == unlimited)
    std::cout << "every order";
  else
    std::cout << "every order of at most " << how.preemptions << " preemptions and "
              << how.stale_reads << " stale reads";
  std::cout << ": " << all.runs << " runs, " << all.redundant << " redundant, " << all.steps
            << " steps, at most " << all.longest << " in one, " << seconds.count() << " s"
            << std::endl;
  const std::uint64_t least = how.random_runs != 0 ? how.random_runs : one.least_runs;
  if (!all.finding.empty())
    return "CORDMA_MODEL_SCENARIO=\"" + std::string{one.name} + "\"\n" + all.finding;
  if (all.runs < least && !is_repeated)
    return "only " + std::to_string(all.runs) + " runs, of " + std::to_string(least);
  return {};
}

std::string found_by(const std::vector<exploration>& all) {
  for (const exploration& one : all)
    if (const std::string finding = found_by(one, few_runs, 1); !finding.empty()) return finding;
  return {};
}

std::string found_at_random(const std::vector<exploration>& all, std::uint64_t runs,
                            std::uint64_t seed) {
  for (const exploration& one : all) {
    if (one.how.random_runs == 0) continue;
    if (const std::string finding = found_by(one, runs, seed); !finding.empty()) return finding;
  }
  return {};
}

}  // namespace model
