#include "support/soak.hpp"

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <random>
#include <stdexcept>
#include <string>

#include "support/log.hpp"

namespace cordma::test::soak {
namespace {

std::uint64_t number_from_environment(const char* name, std::uint64_t otherwise) {
  const char* const text = std::getenv(name);  // NOLINT(concurrency-mt-unsafe)
  if (text == nullptr || *text == '\0') return otherwise;
  char* end = nullptr;
  const std::uint64_t value = std::strtoull(text, &end, 0);
  if (*end != '\0') throw std::invalid_argument{std::string{name} + "=" + text + ": not a number"};
  return value;
}

}  // namespace

std::uint64_t count(std::uint64_t full) {
  const std::uint64_t divisor =
      std::max<std::uint64_t>(1, number_from_environment("CORDMA_SOAK_DIVISOR", 1));
  const std::uint64_t chosen =
      std::max<std::uint64_t>(1, number_from_environment("CORDMA_SOAK_COUNT", full / divisor));
  std::cout << "count " << chosen << std::endl;
  log_line("count", std::to_string(chosen));
  return chosen;
}

std::uint64_t seed() {
  const std::uint64_t chosen = number_from_environment("CORDMA_SEED", std::random_device{}());
  std::cout << "seed " << chosen << " (CORDMA_SEED)" << std::endl;
  return chosen;
}

}  // namespace cordma::test::soak
