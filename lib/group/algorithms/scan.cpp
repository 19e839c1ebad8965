#include "algorithms.hpp"
#include "group/algorithm_table.hpp"
#include "steps.hpp"

namespace cordma::detail {

task<> doubling_scan(exchange& x, const collective_call& call, const algorithm_table& table) {
  const unsigned rank = x.rank();
  const element_segments segments{x, call, table};
  const_local_mr_slice sum = call.in;
  for (unsigned distance = 1; distance < x.size(); distance *= 2) {
    combine_step step;
    if (rank + distance < x.size()) {
      step.to = rank + distance;
      step.sent = sum;
    }
    if (rank >= distance) {
      step.from = rank - distance;
      step.operand = sum;
      step.sum = call.out;
    }
    co_await run_step(x, step, segments);
    if (rank >= distance) sum = call.out;
  }
  if (rank == 0) x.copy(call.out, call.in);
}

}  // namespace cordma::detail
