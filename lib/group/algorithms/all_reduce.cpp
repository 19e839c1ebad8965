#include "algorithms.hpp"
#include "folded_ranks.hpp"
#include "group/algorithm_table.hpp"
#include "halving.hpp"
#include "message_parts.hpp"
#include "ring.hpp"
#include "steps.hpp"

namespace cordma::detail {
namespace {

/// The part of a rank that folds its operands into its partner's, and gets the result.
task<> fold(exchange& x, const collective_call& call, const algorithm_table& table) {
  const unsigned partner = folded_ranks::partner_of(x.rank());
  const move_step operands{.to = partner, .sent = call.in};
  co_await run_step(x, operands, element_segment(call, table));
  const move_step sum{.from = partner, .received = call.out};
  co_await run_step(x, sum, element_segment(call, table));
}

/// Takes over the partner's operands. Returns those of both, if there is one.
task<const_local_mr_slice> unfold(exchange& x, const collective_call& call,
                                  const element_segments& segments) {
  const combine_step step{
      .from = folded_ranks::partner_of(x.rank()), .operand = call.in, .sum = call.out};
  if (!folded_ranks{x.size()}.is_paired(x.rank())) co_return call.in;
  co_await run_step(x, step, segments);
  co_return call.out;
}

task<> tell_partner(exchange& x, const collective_call& call, const algorithm_table& table) {
  const move_step sum{.to = folded_ranks::partner_of(x.rank()), .sent = call.out};
  co_await run_step(x, sum, element_segment(call, table));
}

}  // namespace

task<> doubling_all_reduce(exchange& x, const collective_call& call, const algorithm_table& table) {
  const folded_ranks ranks{x.size()};
  if (ranks.is_folded(x.rank())) {
    co_await fold(x, call, table);
    co_return;
  }
  const element_segments segments{x, call, table};
  const unsigned number = ranks.number_of(x.rank());
  const_local_mr_slice operands = co_await unfold(x, call, segments);
  for (unsigned distance = ranks.count() / 2; distance > 0; distance /= 2) {
    const unsigned peer = ranks.rank_of(number ^ distance);
    const combine_step step{
        .to = peer, .sent = operands, .from = peer, .operand = operands, .sum = call.out};
    co_await run_step(x, step, segments);
    operands = call.out;
  }
  if (ranks.is_paired(x.rank())) co_await tell_partner(x, call, table);
}

task<> rabenseifner_all_reduce(exchange& x, const collective_call& call,
                               const algorithm_table& table) {
  const folded_ranks ranks{x.size()};
  if (ranks.is_folded(x.rank())) {
    co_await fold(x, call, table);
    co_return;
  }
  const element_segments segments{x, call, table};
  const const_local_mr_slice operands = co_await unfold(x, call, segments);
  const message_parts parts{call.in.size_bytes(), call.element_bytes(), ranks.count()};
  const auto begin_of = [&](unsigned number) { return parts.begin_of(number); };
  co_await reduce_by_halving(x, ranks, operands, call.out, begin_of, segments);
  co_await gather_by_doubling(x, ranks, 1, call.out, begin_of, element_segment(call, table));
  if (ranks.is_paired(x.rank())) co_await tell_partner(x, call, table);
}

task<> ring_all_reduce(exchange& x, const collective_call& call, const algorithm_table& table) {
  const message_parts parts{call.in.size_bytes(), call.element_bytes(), x.size()};
  const local_mr_slice sum = parts.part_of(call.out, x.rank());
  const std::size_t segment = element_segment(call, table);
  co_await reduce_round(x, 0, parts, call.in, sum, call.out, segment);
  co_await gather_round(x, 1, parts, sum, call.out, segment);
}

}  // namespace cordma::detail
