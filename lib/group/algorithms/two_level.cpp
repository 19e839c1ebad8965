#include "algorithms.hpp"
#include "group/algorithm_table.hpp"
#include "rank_view.hpp"

namespace cordma::detail {
namespace {

/// One level's operation for a call of both: the kind and the memory follow.
collective_call part_of(const collective_call& whole, collective_kind kind, unsigned root) {
  return {.kind = kind, .root = root, .reduction = whole.reduction};
}

/// The ranks of this host before and after the step among the leaders, and the leaders.
struct levels {
  explicit levels(exchange& x, unsigned root = 0) noexcept
      : inner{x, 1},
        outer{x, root, 2},
        last{x, 3},
        leader{outer.index_of_leader(outer.rank())},
        is_leader{inner.rank() == leader} {}
  ranks_of_host inner;
  ranks_of_leaders outer;
  ranks_of_host last;
  unsigned leader;  ///< Number among the ranks of the host.
  bool is_leader;
};

}  // namespace

task<> two_level_barrier(exchange& x, const collective_call& call, const algorithm_table& table) {
  levels ranks{x};
  co_await run_unchecked(ranks.inner, call, table);
  if (ranks.is_leader) co_await run_unchecked(ranks.outer, call, table);
  co_await run_unchecked(ranks.last, call, table);
}

task<> two_level_broadcast(exchange& x, const collective_call& call, const algorithm_table& table) {
  levels ranks{x, call.root};
  collective_call part = part_of(call, call.kind, x.hosts()->host_of(call.root));
  part.out = call.out;
  if (ranks.is_leader) co_await run_unchecked(ranks.outer, part, table);
  part.root = ranks.leader;
  co_await run_unchecked(ranks.last, part, table);
}

task<> two_level_all_gather(exchange& x, const collective_call& call,
                            const algorithm_table& table) {
  levels ranks{x};
  const std::size_t of_host = ranks.inner.size() * call.blocks.each;
  const local_mr_slice blocks = call.out.slice(ranks.outer.rank() * of_host, of_host);
  collective_call gather = part_of(call, collective_kind::gather, ranks.leader);
  gather.in = call.in;
  if (ranks.is_leader) gather.out = blocks;
  gather.blocks = call.blocks;
  co_await run_unchecked(ranks.inner, gather, table);
  if (ranks.is_leader) {
    collective_call all_gather = part_of(call, call.kind, 0);
    all_gather.in = blocks;
    all_gather.out = call.out;
    all_gather.blocks.each = of_host;
    co_await run_unchecked(ranks.outer, all_gather, table);
  }
  collective_call broadcast = part_of(call, collective_kind::broadcast, ranks.leader);
  broadcast.out = call.out;
  co_await run_unchecked(ranks.last, broadcast, table);
}

task<> two_level_reduce(exchange& x, const collective_call& call, const algorithm_table& table) {
  levels ranks{x, call.root};
  collective_call part = part_of(call, call.kind, ranks.leader);
  part.in = call.in;
  if (ranks.is_leader)
    part.out = x.rank() == call.root ? call.out : x.scratch(call.in.size_bytes());
  co_await run_unchecked(ranks.inner, part, table);
  if (!ranks.is_leader) co_return;
  part.root = x.hosts()->host_of(call.root);
  part.in = part.out;
  part.out = call.out;
  co_await run_unchecked(ranks.outer, part, table);
}

task<> two_level_all_reduce(exchange& x, const collective_call& call,
                            const algorithm_table& table) {
  levels ranks{x};
  collective_call reduce = part_of(call, collective_kind::reduce, ranks.leader);
  reduce.in = call.in;
  if (ranks.is_leader) reduce.out = call.out;
  co_await run_unchecked(ranks.inner, reduce, table);
  if (ranks.is_leader) {
    collective_call all_reduce = part_of(call, call.kind, 0);
    all_reduce.in = call.out;
    all_reduce.out = call.out;
    co_await run_unchecked(ranks.outer, all_reduce, table);
  }
  collective_call broadcast = part_of(call, collective_kind::broadcast, ranks.leader);
  broadcast.out = call.out;
  co_await run_unchecked(ranks.last, broadcast, table);
}

}  // namespace cordma::detail
