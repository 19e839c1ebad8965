#pragma once

#include <cstddef>
#include <string>
#include <vector>

/// What this process holds, as the kernel counts it.
namespace census {

struct holdings {
  std::size_t descriptors = 0;
  std::size_t mappings = 0;
  std::size_t resident_kib = 0;
  std::size_t threads = 0;
};
holdings now();

/// This process's descriptors and mappings that are softverbs': its sockets `@softverbs.*`, memfds.
std::vector<std::string> leftovers();
/// The names `@softverbs.*` in this network namespace that no process owns. Root only: others
/// cannot see everybody's descriptors.
std::vector<std::string> orphans();

}  // namespace census
