#include "algorithms.hpp"
#include "group/algorithm_table.hpp"
#include "in_flight.hpp"
#include "message_parts.hpp"
#include "rank_view.hpp"
#include "steps.hpp"

#include <algorithm>

namespace cordma::detail {
namespace {

/// Messages of the root that are in flight at once.
constexpr unsigned peer_window = 8;

/// Blocks of one length that lie in the order of ranks, seen from the root on: the last ones lie
/// before the root's.
template <class Slice>
class blocks_from {
 public:
  blocks_from(unsigned root, unsigned ranks, std::size_t each, const Slice& all) noexcept
      : root_{root}, ranks_{ranks}, each_{each}, all_{all} {}
  /// Returns the blocks from `first` to before `last`, but those that lie before the root's.
  [[nodiscard]] Slice behind(unsigned first, unsigned last) const {
    const unsigned end = ranks_ - root_;
    return first >= end ? Slice{} : range(first + root_, std::min(last, end) + root_);
  }
  /// Returns those that lie before the root's.
  [[nodiscard]] Slice before(unsigned first, unsigned last) const {
    const unsigned end = ranks_ - root_;
    return last <= end ? Slice{} : range(std::max(first, end) - end, last - end);
  }

 private:
  [[nodiscard]] Slice range(unsigned first, unsigned last) const {
    return all_.slice(first * each_, (last - first) * each_);
  }
  unsigned root_;
  unsigned ranks_;
  std::size_t each_;
  Slice all_;
};

/// Returns both parts as one, copied into scratch memory unless one is empty.
const_local_mr_slice joined(exchange& x, const const_local_mr_slice& first,
                            const const_local_mr_slice& second) {
  if (first.empty() || second.empty()) return first.empty() ? second : first;
  const local_mr_slice both = x.scratch(first.size_bytes() + second.size_bytes());
  x.copy(both.first(first.size_bytes()), first);
  x.copy(both.last(second.size_bytes()), second);
  return both;
}

}  // namespace

task<> binomial_scatter(exchange& x, const collective_call& call, const algorithm_table& table) {
  const std::size_t each = call.blocks.each;
  const std::size_t segment = table.segment_bytes();
  ranks_from ranks{call.root, x};
  const unsigned rank = ranks.rank();
  const binomial_tree tree{rank, ranks.size()};
  const blocks_from blocks{call.root, ranks.size(), each, call.in};
  local_mr_slice held = call.out;
  if (rank != 0) {
    if (!tree.is_leaf()) held = x.scratch((tree.end() - rank) * each);
    const move_step received{.from = tree.parent(), .received = held};
    co_await run_step(ranks, received, segment);
  }
  in_flight<outgoing, peer_window> sends;
  for (unsigned distance = tree.farthest(); distance > 0; distance /= 2) {
    const unsigned child = rank + distance;
    const unsigned end = tree.end_of_child(distance);
    const const_local_mr_slice sent =
        rank != 0 ? held.slice(distance * each, (end - child) * each)
                  : joined(x, blocks.behind(child, end), blocks.before(child, end));
    for (std::size_t i = 0; i < segments_of(sent.size_bytes(), segment); ++i) {
      if (sends.is_full()) co_await sends.oldest();
      sends.post(ranks, child, std::uint32_t(i), segment_of(sent, i, segment));
    }
  }
  x.copy(call.out, rank == 0 ? blocks.behind(0, 1) : held.first(each));
  while (!sends.is_empty()) co_await sends.oldest();
}

task<> binomial_gather(exchange& x, const collective_call& call, const algorithm_table& table) {
  const std::size_t each = call.blocks.each;
  const std::size_t segment = table.segment_bytes();
  ranks_from ranks{call.root, x};
  const unsigned rank = ranks.rank();
  const binomial_tree tree{rank, ranks.size()};
  const blocks_from blocks{call.root, ranks.size(), each, call.out};
  const_local_mr_slice held = call.in;
  if (rank != 0 && !tree.is_leaf()) {
    const local_mr_slice all = x.scratch((tree.end() - rank) * each);
    x.copy(all.first(each), call.in);
    for (unsigned distance = 1; distance <= tree.farthest(); distance *= 2) {
      const std::size_t count = tree.end_of_child(distance) - (rank + distance);
      const move_step received{.from = rank + distance,
                               .received = all.slice(distance * each, count * each)};
      co_await run_step(ranks, received, segment);
    }
    held = all;
  }
  if (rank != 0) {
    const move_step sent{.to = tree.parent(), .sent = held};
    co_await run_step(ranks, sent, segment);
    co_return;
  }
  x.copy(blocks.behind(0, 1), call.in);
  for (unsigned distance = 1; distance <= tree.farthest(); distance *= 2) {
    const unsigned end = tree.end_of_child(distance);
    const local_mr_slice behind = blocks.behind(distance, end);
    const local_mr_slice before = blocks.before(distance, end);
    const bool is_split = !behind.empty() && !before.empty();
    const local_mr_slice all = is_split         ? x.scratch((end - distance) * each)
                               : before.empty() ? behind
                                                : before;
    const move_step received{.from = distance, .received = all};
    co_await run_step(ranks, received, segment);
    if (!is_split) continue;
    x.copy(behind, all.first(behind.size_bytes()));
    x.copy(before, all.last(before.size_bytes()));
  }
}

task<> linear_scatter(exchange& x, const collective_call& call, const algorithm_table& table) {
  const std::size_t segment = table.segment_bytes();
  if (x.rank() != call.root) {
    const move_step received{.from = call.root, .received = call.out};
    co_await run_step(x, received, segment);
    co_return;
  }
  in_flight<outgoing, peer_window> sends;
  std::size_t begin = 0;
  for (unsigned rank = 0; rank < x.size(); ++rank) {
    const const_local_mr_slice block = call.in.slice(begin, call.blocks.at(rank));
    begin += block.size_bytes();
    if (rank == call.root) {
      x.copy(call.out, block);
      continue;
    }
    for (std::size_t i = 0; i < segments_of(block.size_bytes(), segment); ++i) {
      if (sends.is_full()) co_await sends.oldest();
      sends.post(x, rank, std::uint32_t(i), segment_of(block, i, segment));
    }
  }
  while (!sends.is_empty()) co_await sends.oldest();
}

task<> linear_gather(exchange& x, const collective_call& call, const algorithm_table& table) {
  const std::size_t segment = table.segment_bytes();
  if (x.rank() != call.root) {
    const move_step sent{.to = call.root, .sent = call.in};
    co_await run_step(x, sent, segment);
    co_return;
  }
  in_flight<incoming, peer_window> receives;
  std::size_t begin = 0;
  for (unsigned rank = 0; rank < x.size(); ++rank) {
    const local_mr_slice block = call.out.slice(begin, call.blocks.at(rank));
    begin += block.size_bytes();
    if (rank == call.root) {
      x.copy(block, call.in);
      continue;
    }
    for (std::size_t i = 0; i < segments_of(block.size_bytes(), segment); ++i) {
      if (receives.is_full()) co_await receives.oldest();
      receives.post(x, rank, std::uint32_t(i), segment_of(block, i, segment));
    }
  }
  while (!receives.is_empty()) co_await receives.oldest();
}

}  // namespace cordma::detail
