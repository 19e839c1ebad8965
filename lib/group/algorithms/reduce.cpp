#include "algorithms.hpp"
#include "folded_ranks.hpp"
#include "group/algorithm_table.hpp"
#include "halving.hpp"
#include "message_parts.hpp"
#include "steps.hpp"

namespace cordma::detail {
task<> binomial_reduce(exchange& x, const collective_call& call, const algorithm_table& table) {
  const unsigned rank = x.rank();
  const folded_ranks ranks{x.size(), call.root};
  const unsigned partner = folded_ranks::partner_of(rank);
  const unsigned number = ranks.number_of(rank);
  const unsigned to_root = number ^ ranks.number_of(call.root);
  const_local_mr_slice operands = call.in;
  // A leaf has nothing to sum up: it sends its operands.
  const unsigned farthest = ranks.count() / 2;
  if (!ranks.is_folded(rank) && (ranks.is_paired(rank) || (to_root & farthest) == 0)) {
    const element_segments segments{x, call, table};
    const local_mr_slice sum = rank == call.root ? call.out : x.scratch(call.in.size_bytes());
    if (ranks.is_paired(rank)) {
      const combine_step fold{.from = partner, .operand = operands, .sum = sum};
      co_await run_step(x, fold, segments);
      operands = sum;
    }
    for (unsigned distance = farthest; distance > 0; distance /= 2) {
      if ((to_root & distance) != 0) break;
      const combine_step step{
          .from = ranks.rank_of(number ^ distance), .operand = operands, .sum = sum};
      co_await run_step(x, step, segments);
      operands = sum;
    }
  }
  if (rank == call.root) co_return;
  const unsigned nearer = number ^ std::bit_floor(to_root);
  const move_step sent{.to = ranks.is_folded(rank) ? partner : ranks.rank_of(nearer),
                       .sent = operands};
  co_await run_step(x, sent, element_segment(call, table));
}

task<> rabenseifner_reduce(exchange& x, const collective_call& call, const algorithm_table& table) {
  const unsigned rank = x.rank();
  const folded_ranks ranks{x.size(), call.root};
  const unsigned partner = folded_ranks::partner_of(rank);
  if (ranks.is_folded(rank)) {
    const move_step fold{.to = partner, .sent = call.in};
    co_await run_step(x, fold, element_segment(call, table));
    co_return;
  }
  const element_segments segments{x, call, table};
  const local_mr_slice sum = rank == call.root ? call.out : x.scratch(call.in.size_bytes());
  const_local_mr_slice operands = call.in;
  if (ranks.is_paired(rank)) {
    const combine_step fold{.from = partner, .operand = operands, .sum = sum};
    co_await run_step(x, fold, segments);
    operands = sum;
  }
  const message_parts parts{call.in.size_bytes(), call.element_bytes(), ranks.count()};
  const auto begin_of = [&](unsigned number) { return parts.begin_of(number); };
  co_await reduce_by_halving(x, ranks, operands, sum, begin_of, segments);

  const unsigned number = ranks.number_of(rank);
  const unsigned to_root = number ^ ranks.number_of(call.root);
  for (unsigned distance = 1; distance < ranks.count(); distance *= 2) {
    const unsigned other = number ^ distance;
    const unsigned mine = number & ~(distance - 1);
    const unsigned others = other & ~(distance - 1);
    move_step step{.part = 1, .to = ranks.rank_of(other), .from = ranks.rank_of(other)};
    if ((to_root & distance) != 0) {
      step.sent = parts.range_of(sum, mine, mine + distance);
    } else {
      step.received = parts.range_of(sum, others, others + distance);
    }
    co_await run_step(x, step, element_segment(call, table));
    if ((to_root & distance) != 0) co_return;
  }
}

}  // namespace cordma::detail
