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

/// Doubles the parts that each number has, and the distance, until each has all of `message`.
/// `begin_of(n)` gives the offset of number n's part, and of the end. Every rank that has a number
/// takes part. `part` is that of the steps.
template <class BeginOf>
task<> gather_by_doubling(exchange& x, folded_ranks ranks, std::uint32_t part,
                          local_mr_slice message, BeginOf begin_of, std::size_t segment_bytes) {
  const unsigned number = ranks.number_of(x.rank());
  for (unsigned distance = 1; distance < ranks.count(); distance *= 2) {
    const auto parts_of = [&](unsigned of) {
      const unsigned first = of & ~(distance - 1);
      const std::size_t begin = begin_of(first);
      return message.slice(begin, begin_of(first + distance) - begin);
    };
    const unsigned other = number ^ distance;
    const move_step step{.part = part,
                         .to = ranks.rank_of(other),
                         .sent = parts_of(number),
                         .from = ranks.rank_of(other),
                         .received = parts_of(other)};
    co_await run_step(x, step, segment_bytes);
  }
}

}  // namespace cordma::detail
