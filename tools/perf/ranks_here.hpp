#pragma once

#include <functional>
#include <string>

namespace perf {

/// The exit status of a command line that makes no sense.
inline constexpr int misuse_status = 2;

/// The end of one rank.
struct rank_outcome {
  int exit_status = 0;
  std::string why{};           ///< in one line; empty: all went well
  bool is_by_another = false;  ///< another rank has failed, and all notice that
  bool is_silent = false;      ///< a lower rank tells the same
};

/// Runs ranks in processes of their own: this one only waits for them, and is none. They are killed
/// with it, and when one of them fails. Forked: call it before the first thread and the first
/// device.
/// \errors std::invalid_argument, std::runtime_error: the outcome of the first that fails.
void run_ranks_here(unsigned count, const std::function<rank_outcome(unsigned rank)>& body);

}  // namespace perf
