#pragma once

#include "collective_plan.hpp"
#include "collective_result.hpp"

#include <cordma/coro/task.hpp>
#include <cordma/group/group.hpp>
#include <cordma/memory/local_mr.hpp>

#include <chrono>

namespace perf {

/// Measures cases on one rank of a group, with all other ranks.
class collective_timing {
 public:
  /// \param memory_bytes  of `in` and of `out`, for the largest case.
  collective_timing(cordma::group& g, std::uint64_t in_bytes, std::uint64_t out_bytes,
                    std::chrono::nanoseconds duration);

  /// Measures the algorithms of a case in turns, so that a disturbance meets them all. All ranks
  /// get the same times.
  cordma::task<collective_result> measure(planned_case what);

 private:
  struct contender;
  cordma::task<double> run(const collective_case& what, const contender& by, std::uint64_t count);
  cordma::task<> warm_up(const collective_case& what, contender& by);

  cordma::group& group_;
  cordma::local_mr in_, out_;
  const double ns_each_round_;
};

}  // namespace perf
