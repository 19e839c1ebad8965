#include "algorithms.hpp"
#include "group/algorithm_table.hpp"
#include "in_flight.hpp"
#include "message_parts.hpp"
#include "pairwise.hpp"
#include "steps.hpp"

#include <cordma/coro/when_all.hpp>

#include <algorithm>

namespace cordma::detail {
namespace {

/// Swaps blocks with each rank: in round k of all ranks, each with one whose rank and its own make
/// k, modulo their number.
task<> swap_blocks(exchange& x, std::size_t each, local_mr_slice blocks,
                   std::size_t segment_bytes) {
  const unsigned size = x.size();
  const std::size_t slot_bytes = std::min(each, segment_bytes);
  const std::size_t per_rank = segments_of(each, segment_bytes);
  const std::size_t count = per_rank * size;
  const local_mr_slice slots =
      x.scratch(std::min<std::size_t>(count, pairwise_window) * slot_bytes);
  const auto peer_of = [&](std::size_t i) {
    return (unsigned(i / per_rank) + size - x.rank()) % size;
  };
  const auto swapped = [&](std::size_t i) {
    const unsigned peer = peer_of(i);
    if (peer == x.rank()) return local_mr_slice{};
    return segment_of(blocks.slice(peer * each, each), i % per_rank, segment_bytes);
  };
  const auto slot_of = [&](std::size_t i) {
    return slots.slice(i % pairwise_window * slot_bytes, swapped(i).size_bytes());
  };
  in_flight<incoming, pairwise_window> receives;
  in_flight<outgoing, pairwise_window> sends;
  std::size_t posted = 0;
  for (std::size_t i = 0; i < count; ++i) {
    for (; posted < count && !receives.is_full(); ++posted) {
      const auto step = std::uint32_t(posted % per_rank);
      receives.post(x, peer_of(posted), step, slot_of(posted));
      sends.post(x, peer_of(posted), step, swapped(posted));
    }
    co_await receives.oldest();
    co_await sends.oldest();
    x.copy(swapped(i), slot_of(i));
  }
}

}  // namespace

task<> bruck_all_to_all(exchange& x, const collective_call& call, const algorithm_table& table) {
  const unsigned rank = x.rank();
  const unsigned size = x.size();
  const std::size_t each = call.blocks.each;
  const auto block_of = [&](const auto& blocks, unsigned i) {
    return blocks.slice(i * each, each);
  };
  // Block j is on its route to the rank j behind this one.
  const local_mr_slice blocks = x.scratch(size * each);
  const local_mr_slice sent = x.scratch((size + 1) / 2 * each);
  const local_mr_slice received = x.scratch((size + 1) / 2 * each);
  x.copy(blocks.first((size - rank) * each), call.in.last((size - rank) * each));
  x.copy(blocks.last(rank * each), call.in.first(rank * each));
  for (unsigned distance = 1; distance < size; distance *= 2) {
    unsigned count = 0;
    for (unsigned j = distance; j < size; ++j)
      if ((j & distance) != 0) x.copy(block_of(sent, count++), block_of(blocks, j));
    const move_step step{.to = (rank + distance) % size,
                         .sent = sent.first(count * each),
                         .from = (rank + size - distance) % size,
                         .received = received.first(count * each)};
    co_await run_step(x, step, table.segment_bytes());
    for (unsigned j = size - 1; j >= distance; --j)
      if ((j & distance) != 0) x.copy(block_of(blocks, j), block_of(received, --count));
  }
  for (unsigned j = 0; j < size; ++j)
    x.copy(block_of(call.out, (rank + size - j) % size), block_of(blocks, j));
}

task<> pairwise_all_to_all(exchange& x, const collective_call& call, const algorithm_table& table) {
  const std::size_t segment = table.segment_bytes();
  if (!call.in.empty() && call.in.bytes().data() == call.out.bytes().data()) {
    co_await swap_blocks(x, call.blocks.each, call.out, segment);
    co_return;
  }
  const message_parts sent{call.blocks, x.size()};
  const message_parts received{call.received, x.size()};
  x.copy(received.part_of(call.out, x.rank()), sent.part_of(call.in, x.rank()));
  co_await when_all(send_parts(x, sent, call.in, segment),
                    receive_parts(x, received, call.out, segment));
}

}  // namespace cordma::detail
