#pragma once

#include <cordma/coro/task.hpp>
#include <cordma/group/group.hpp>

#include <cstdint>
#include <vector>

namespace perf {

/// The times at which a rank began operations, and ended them: nanoseconds of the steady clock,
/// which the processes of a host share.
struct operation_moments {
  std::vector<std::int64_t> begun{};
  std::vector<std::int64_t> ended{};

  /// Returns the mean time of an operation, in nanoseconds, from the first rank's begin to the last
  /// one's end. All ranks, which are on one host, call this and get equal results.
  cordma::task<double> mean_of_all(cordma::group& g);
  /// Returns the mean time from this rank's own begin to its end.
  [[nodiscard]] double mean_of_own() const;
};

}  // namespace perf
