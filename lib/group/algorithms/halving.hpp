#pragma once

#include "folded_ranks.hpp"
#include "steps.hpp"

namespace cordma::detail {

/// Halves a message and the distance until each number has the sum of a part of its own, at its
/// offset in `sum`. `begin_of(n)` gives the offset of number n's part, and of the end. Every rank
/// that has a number takes part.
template <class BeginOf>
task<> reduce_by_halving(exchange& x, folded_ranks ranks, const_local_mr_slice operands,
                         local_mr_slice sum, BeginOf begin_of, const element_segments& segments) {
  const unsigned number = ranks.number_of(x.rank());
  for (unsigned distance = ranks.count() / 2; distance > 0; distance /= 2) {
    const auto half_of = [&](const auto& all, unsigned of) {
      const unsigned first = of & ~(distance - 1);
      const std::size_t begin = begin_of(first);
      return all.slice(begin, begin_of(first + distance) - begin);
    };
    const unsigned other = number ^ distance;
    const combine_step step{.to = ranks.rank_of(other),
                            .sent = half_of(operands, other),
                            .from = ranks.rank_of(other),
                            .operand = half_of(operands, number),
                            .sum = half_of(sum, number)};
    co_await run_step(x, step, segments);
    operands = sum;
  }
}

}  // namespace cordma::detail
