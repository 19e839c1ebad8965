#pragma once

#include "collective_plan.hpp"
#include "collective_result.hpp"

#include <cordma/coro/task.hpp>
#include <cordma/group/group.hpp>
#include <cordma/memory/local_mr.hpp>

#include <chrono>

namespace perf {

/// Returns true if all ranks share a clock.
[[nodiscard]] bool is_one_host(const cordma::group& g);

/// Measures cases on one rank of a group, with all other ranks.
class collective_timing {
 public:
  /// \param duration  of each algorithm, all rounds together.
  collective_timing(cordma::group& g, std::chrono::nanoseconds duration) noexcept
      : group_{g}, ns_each_round_{double(duration.count()) / double(collective_rounds)} {}

  /// Measures the algorithms of a case in turns, so that a disturbance meets them all. All ranks
  /// get the same times.
  cordma::task<collective_result> measure(planned_case what);

 private:
  struct contender;
  cordma::task<double> run(const collective_case& what, const contender& by, std::uint64_t count);
  cordma::task<> warm_up(const collective_case& what, contender& by);

  cordma::group& group_;
  cordma::local_mr in_, out_;  ///< the memory of the present case
  const double ns_each_round_;
};

}  // namespace perf
