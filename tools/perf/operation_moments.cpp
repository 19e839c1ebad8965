#include "operation_moments.hpp"

#include <span>

namespace perf {

double operation_moments::mean_of_own() const {
  std::int64_t all = 0;
  for (std::size_t i = 0; i < begun.size(); ++i) all += ended[i] - begun[i];
  return begun.empty() ? 0 : double(all) / double(begun.size());
}

cordma::task<double> operation_moments::mean_of_all(cordma::group& g) {
  operation_moments first_and_last = *this;
  co_await g.all_reduce(std::span{first_and_last.begun}, cordma::reduction::min);
  co_await g.all_reduce(std::span{first_and_last.ended}, cordma::reduction::max);
  co_return first_and_last.mean_of_own();
}

}  // namespace perf
