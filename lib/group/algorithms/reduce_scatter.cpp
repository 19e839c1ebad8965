#include "algorithms.hpp"
#include "folded_ranks.hpp"
#include "group/algorithm_table.hpp"
#include "halving.hpp"
#include "in_flight.hpp"
#include "message_parts.hpp"
#include "pairwise.hpp"
#include "ring.hpp"
#include "steps.hpp"

#include <cordma/coro/when_all.hpp>

namespace cordma::detail {
namespace {

/// Sums up what the other ranks send, beginning with the rank before.
task<> sum_up(exchange& x, const_local_mr_slice operand, local_mr_slice sum,
              std::size_t segment_bytes) {
  constexpr std::size_t slots = pairwise_window;
  const unsigned size = x.size();
  const std::size_t slot_bytes = std::min(segment_bytes, sum.size_bytes());
  const std::size_t per_rank = segments_of(sum.size_bytes(), segment_bytes);
  const std::size_t count = per_rank * (size - 1);
  const local_mr_slice memory = x.scratch(std::min(count, slots) * slot_bytes);
  const auto peer_of = [&](std::size_t i) {
    return (x.rank() + size - 1 - unsigned(i / per_rank)) % size;
  };
  in_flight<incoming, slots> receives;
  std::size_t posted = 0;
  for (std::size_t i = 0; i < count; ++i) {
    for (; posted < count && !receives.is_full(); ++posted) {
      const std::size_t length = segment_of(sum, posted % per_rank, segment_bytes).size_bytes();
      receives.post(x, peer_of(posted), std::uint32_t(posted % per_rank),
                    memory.slice(posted % slots * slot_bytes, length));
    }
    co_await receives.oldest();
    const std::size_t segment = i % per_rank;
    const local_mr_slice result = segment_of(sum, segment, segment_bytes);
    const const_local_mr_slice own =
        segment_of(i < per_rank ? operand : const_local_mr_slice{sum}, segment, segment_bytes);
    const local_mr_slice received = memory.slice(i % slots * slot_bytes, result.size_bytes());
    if (peer_of(i) < x.rank()) {
      x.combine(result, received, own);
    } else {
      x.combine(result, own, received);
    }
  }
}

}  // namespace

task<> halving_reduce_scatter(exchange& x, const collective_call& call,
                              const algorithm_table& table) {
  const unsigned rank = x.rank();
  const folded_ranks ranks{x.size()};
  const unsigned partner = folded_ranks::partner_of(rank);
  const std::size_t segment = element_segment(call, table);
  if (ranks.is_folded(rank)) {
    const move_step operands{.to = partner, .sent = call.in};
    co_await run_step(x, operands, segment);
    const move_step block{.from = partner, .received = call.out};
    co_await run_step(x, block, segment);
    co_return;
  }
  const message_parts parts{call.blocks, x.size()};
  const element_segments segments{x, call, table};
  const local_mr_slice sum = x.scratch(call.in.size_bytes());
  const_local_mr_slice operands = call.in;
  if (ranks.is_paired(rank)) {
    const combine_step fold{.from = partner, .operand = operands, .sum = sum};
    co_await run_step(x, fold, segments);
    operands = sum;
  }
  const auto begin_of = [&](unsigned number) { return parts.begin_of(ranks.lowest_of(number)); };
  co_await reduce_by_halving(x, ranks, operands, sum, begin_of, segments);
  x.copy(call.out, parts.part_of(sum, rank));
  if (!ranks.is_paired(rank)) co_return;
  const move_step block{.to = partner, .sent = parts.part_of(sum, partner)};
  co_await run_step(x, block, segment);
}

task<> ring_reduce_scatter(exchange& x, const collective_call& call, const algorithm_table& table) {
  const message_parts parts{call.blocks, x.size()};
  co_await reduce_round(x, 0, parts, call.in, call.out, {}, element_segment(call, table));
}

task<> pairwise_reduce_scatter(exchange& x, const collective_call& call,
                               const algorithm_table& table) {
  const message_parts parts{call.blocks, x.size()};
  const std::size_t segment = element_segment(call, table);
  co_await when_all(send_parts(x, parts, call.in, segment),
                    sum_up(x, parts.part_of(call.in, x.rank()), call.out, segment));
}

}  // namespace cordma::detail
