#pragma once

#include <string>
#include <vector>

namespace softverbs::run {

/// The libraries that the dynamic linker would load for a program, found without running it.
struct trace {
  std::vector<std::string> loaded;    ///< paths, and names without one
  std::vector<std::string> missing;   ///< names that were not found
  std::vector<std::string> messages;  ///< the dynamic linker's own
  [[nodiscard]] bool loads(const std::string& file) const;
};

/// Asks this dynamic linker, which must be glibc's.
[[nodiscard]] trace trace_program(const std::string& dynamic_linker, const std::string& path,
                                  const std::string& preload);

}  // namespace softverbs::run
