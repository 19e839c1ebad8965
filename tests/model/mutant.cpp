#include "explorations.hpp"

#include <iostream>

// Explores a class with a fault put into a copy of its source. Fails unless the fault is found.

namespace {

bool is_found(const model::exploration& one, std::uint64_t random_runs) {
  const std::string finding = model::found_by(one, random_runs, 1);
  std::cout << finding;
  return !finding.empty();
}

}  // namespace

int main() {
  const auto all = MODEL_EXPLORATIONS();
  // Most faults show in a few random orders of some scenario.
  for (model::exploration one : all) {
    one.how.random_runs = 1;
    if (is_found(one, 2'000)) return 0;
  }
  for (const model::exploration& one : all)
    if (is_found(one, 100'000)) return 0;
  std::cout << "the fault is not found\n";
  return 1;
}
