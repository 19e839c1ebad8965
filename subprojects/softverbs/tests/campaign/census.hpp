#pragma once

#include <cstddef>
#include <string>
#include <vector>

/// The resources of this process, as the kernel counts them.
namespace census {

struct holdings {
  std::size_t descriptors = 0;
  std::size_t mappings = 0;
  std::size_t resident_kib = 0;
  std::size_t threads = 0;
};
holdings now();

/// The descriptors (sockets `@softverbs.*`, memfds) and mappings of this process that are
/// softverbs'.
std::vector<std::string> leftovers();
/// The names `@softverbs.*` in this network namespace that no process owns. Root only: others
/// cannot see everybody's descriptors.
std::vector<std::string> orphans();

}  // namespace census
