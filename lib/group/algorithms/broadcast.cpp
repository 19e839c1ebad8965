#include "algorithms.hpp"
#include "folded_ranks.hpp"
#include "group/algorithm_table.hpp"
#include "halving.hpp"
#include "in_flight.hpp"
#include "message_parts.hpp"
#include "rank_view.hpp"
#include "ring.hpp"
#include "steps.hpp"

namespace cordma::detail {
namespace {

/// Sends each segment to children at distances `farthest`, `farthest`/2 ... `nearest`, as soon as
/// the parent's message brings it. Rank 0 has no parent.
task<> forward(exchange& x, unsigned parent, unsigned farthest, unsigned nearest,
               local_mr_slice data, std::size_t segment_bytes) {
  const std::size_t count = segments_of(data.size_bytes(), segment_bytes);
  in_flight<incoming, segment_window> receives;
  in_flight<outgoing, 2 * segment_window> sends;
  std::size_t posted = 0;
  for (std::size_t i = 0; i < count; ++i) {
    if (x.rank() != 0) {
      for (; posted < count && !receives.is_full(); ++posted)
        receives.post(x, parent, std::uint32_t(posted), segment_of(data, posted, segment_bytes));
      co_await receives.oldest();
    }
    for (unsigned distance = farthest; distance >= nearest; distance /= 2) {
      if (x.rank() + distance >= x.size()) continue;
      if (sends.is_full()) co_await sends.oldest();
      sends.post(x, x.rank() + distance, std::uint32_t(i), segment_of(data, i, segment_bytes));
    }
  }
  while (!sends.is_empty()) co_await sends.oldest();
}

}  // namespace

task<> binomial_broadcast(exchange& x, const collective_call& call, const algorithm_table& table) {
  ranks_from ranks{call.root, x};
  const binomial_tree tree{ranks.rank(), ranks.size()};
  co_await forward(ranks, tree.parent(), tree.farthest(), 1, call.out, table.segment_bytes());
}

task<> chain_broadcast(exchange& x, const collective_call& call, const algorithm_table& table) {
  ranks_from ranks{call.root, x};
  co_await forward(ranks, ranks.rank() - 1, 1, 1, call.out, table.segment_bytes());
}

task<> scattered_broadcast(exchange& x, const collective_call& call, const algorithm_table& table) {
  ranks_from ranks{call.root, x};
  const unsigned rank = ranks.rank();
  const message_parts parts{call.out.size_bytes(), 1, ranks.size()};
  const binomial_tree tree{rank, ranks.size()};
  if (rank != 0) {
    const local_mr_slice mine = parts.range_of(call.out, rank, tree.end());
    const move_step received{.from = tree.parent(), .received = mine};
    co_await run_step(ranks, received, table.segment_bytes());
  }
  for (unsigned distance = tree.farthest(); distance > 0; distance /= 2) {
    const unsigned child = rank + distance;
    const move_step sent{.to = child,
                         .sent = parts.range_of(call.out, child, tree.end_of_child(distance))};
    co_await run_step(ranks, sent, table.segment_bytes());
  }
  if (const folded_ranks numbers{ranks.size()}; numbers.count() == ranks.size()) {
    const auto begin_of = [&](unsigned number) { return parts.begin_of(number); };
    co_await gather_by_doubling(ranks, numbers, 1, call.out, begin_of, table.segment_bytes());
  } else {
    const local_mr_slice mine = parts.part_of(call.out, rank);
    co_await gather_round(ranks, 1, parts, mine, call.out, table.segment_bytes());
  }
}

}  // namespace cordma::detail
