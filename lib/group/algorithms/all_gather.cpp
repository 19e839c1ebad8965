#include "algorithms.hpp"
#include "folded_ranks.hpp"
#include "group/algorithm_table.hpp"
#include "halving.hpp"
#include "message_parts.hpp"
#include "ring.hpp"
#include "steps.hpp"

#include <algorithm>

namespace cordma::detail {

task<> bruck_all_gather(exchange& x, const collective_call& call, const algorithm_table& table) {
  const unsigned rank = x.rank();
  const unsigned size = x.size();
  const message_parts parts{call.blocks, size};
  // The blocks from this rank's on; those before it follow.
  const std::size_t before = parts.begin_of(rank);
  const std::size_t behind = call.out.size_bytes() - before;
  const local_mr_slice blocks = x.scratch(call.out.size_bytes());
  const auto end_of = [&](unsigned count) {
    return rank + count <= size ? parts.begin_of(rank + count) - before
                                : behind + parts.begin_of(rank + count - size);
  };
  x.copy(blocks.first(end_of(1)), call.in);
  for (unsigned distance = 1; distance < size; distance *= 2) {
    const unsigned count = std::min(distance, size - distance);
    const std::size_t begin = end_of(distance);
    const move_step step{
        .to = (rank + size - distance) % size,
        .sent = blocks.first(end_of(count)),
        .from = (rank + distance) % size,
        .received = blocks.slice(begin, end_of(distance + count) - begin),
    };
    co_await run_step(x, step, table.segment_bytes());
  }
  x.copy(call.out.last(behind), blocks.first(behind));
  x.copy(call.out.first(before), blocks.last(before));
}

task<> doubling_all_gather(exchange& x, const collective_call& call, const algorithm_table& table) {
  const unsigned rank = x.rank();
  const folded_ranks ranks{x.size()};
  const unsigned partner = folded_ranks::partner_of(rank);
  const std::size_t segment = table.segment_bytes();
  if (ranks.is_folded(rank)) {
    const move_step block{.to = partner, .sent = call.in};
    co_await run_step(x, block, segment);
    const move_step all{.from = partner, .received = call.out};
    co_await run_step(x, all, segment);
    co_return;
  }
  const message_parts parts{call.blocks, x.size()};
  x.copy(parts.part_of(call.out, rank), call.in);
  if (ranks.is_paired(rank)) {
    const move_step block{.from = partner, .received = parts.part_of(call.out, partner)};
    co_await run_step(x, block, segment);
  }
  const auto begin_of = [&](unsigned number) { return parts.begin_of(ranks.lowest_of(number)); };
  co_await gather_by_doubling(x, ranks, 0, call.out, begin_of, segment);
  if (!ranks.is_paired(rank)) co_return;
  const move_step all{.to = partner, .sent = call.out};
  co_await run_step(x, all, segment);
}

task<> ring_all_gather(exchange& x, const collective_call& call, const algorithm_table& table) {
  const message_parts parts{call.blocks, x.size()};
  co_await gather_round(x, 0, parts, call.in, call.out, table.segment_bytes());
}

}  // namespace cordma::detail
