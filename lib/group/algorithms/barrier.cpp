#include "algorithms.hpp"

namespace cordma::detail {

task<> dissemination_barrier(exchange& x, const collective_call& /*call*/,
                             const algorithm_table& /*table*/) {
  const unsigned size = x.size();
  for (unsigned distance = 1; distance < size; distance *= 2) {
    incoming heard{x, (x.rank() + size - distance) % size, 0, {}};
    outgoing told{x, (x.rank() + distance) % size, 0, {}};
    co_await heard;
    co_await told;
  }
}

}  // namespace cordma::detail
