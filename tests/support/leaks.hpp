#pragma once

#include "support/verbs_faults.hpp"

#include <cordma/io/executor.hpp>

#include <chrono>
#include <filesystem>
#include <iterator>
#include <string>

namespace cordma::test {

/// Gives a process's open descriptors, and its verbs objects (in programs that are linked with
/// verbs_faults.cpp), as text to compare: `CHECK(holdings() == before)`.
inline std::string holdings() {
  namespace fs = std::filesystem;
  // The iterator's own descriptor is counted each time.
  const auto fds = std::distance(fs::directory_iterator{"/proc/self/fd"}, fs::directory_iterator{});
  return std::to_string(fds) + " descriptors, " +
         verbs_faults::to_string(verbs_faults::live_objects());
}

/// Gives the holdings once they are as expected, or after many turns. A peer that was refused
/// closes when the other side does.
inline std::string settled_holdings(cordma::executor& executor, const std::string& expected) {
  for (int i = 0; i < 5000 && holdings() != expected; ++i) {
    executor.run(executor.sleep_for(std::chrono::milliseconds{1}));
  }
  return holdings();
}

}  // namespace cordma::test
