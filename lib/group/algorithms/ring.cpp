#include "ring.hpp"

#include "in_flight.hpp"
#include "steps.hpp"

#include <algorithm>

namespace cordma::detail {
namespace {

/// A ring's messages: in each round one part goes on to the next rank, in segments. All parts have
/// as many segments, of which some may be empty.
struct ring_rounds {
  std::uint32_t first_step;
  std::size_t per_round;
  std::size_t count;
};

/// Walks through segments in the order of a ring: of one part, then of the part before it.
class segment_cursor {
 public:
  segment_cursor(const message_parts& parts, unsigned first, std::size_t segment_bytes,
                 std::size_t per_round) noexcept
      : part_{parts, first}, segment_bytes_{segment_bytes}, per_round_{per_round} {}

  /// Returns this segment of the whole message, and steps to the next.
  template <class Slice>
  Slice next(const Slice& message) {
    const Slice segment = segment_of(part_.part_of(message), i_, segment_bytes_);
    if (++i_ == per_round_) {
      i_ = 0;
      part_.backward();
    }
    return segment;
  }

 private:
  part_cursor part_;
  const std::size_t segment_bytes_;
  const std::size_t per_round_;
  std::size_t i_ = 0;
};

/// Runs the ring: message i + `per_round` is made of what `received(i)` was told of. Receives are
/// posted ahead.
template <class Sent, class Into, class Received>
task<> run_ring(exchange& x, ring_rounds rounds, Sent sent, Into into, Received received) {
  const unsigned next = (x.rank() + 1) % x.size();
  const unsigned last = (x.rank() + x.size() - 1) % x.size();
  in_flight<incoming, segment_window> receives;
  in_flight<outgoing, segment_window> sends;
  std::size_t to_receive = 0;
  std::size_t to_send = 0;
  for (std::size_t i = 0; i < rounds.count; ++i) {
    for (; to_receive < rounds.count && !receives.is_full(); ++to_receive)
      receives.post(x, last, rounds.first_step + std::uint32_t(to_receive), into(to_receive));
    sends.forget_ended();
    if (to_send == i && sends.is_full()) co_await sends.oldest();
    const std::size_t there = std::min(rounds.count, i + rounds.per_round);
    for (; to_send < there && !sends.is_full(); ++to_send)
      sends.post(x, next, rounds.first_step + std::uint32_t(to_send), sent(to_send));
    co_await receives.oldest();
    received(i);
  }
  while (!sends.is_empty()) co_await sends.oldest();
}

}  // namespace

task<> gather_round(exchange& x, std::uint32_t part, message_parts parts, const_local_mr_slice own,
                    local_mr_slice all, std::size_t segment_bytes) {
  const unsigned rank = x.rank();
  const unsigned size = x.size();
  const std::size_t per_round = segments_of(parts.longest(), segment_bytes);
  segment_cursor sends{parts, rank, segment_bytes, per_round};
  segment_cursor receives{parts, (rank + size - 1) % size, segment_bytes, per_round};
  const auto sent = [&](std::size_t i) {
    const local_mr_slice segment = sends.next(all);
    if (i < per_round) x.copy(segment, segment_of(own, i, segment_bytes));
    return segment;
  };
  const auto into = [&](std::size_t /*i*/) { return receives.next(all); };
  const ring_rounds rounds{part * part_steps, per_round, per_round * (size - 1)};
  co_await run_ring(x, rounds, sent, into, [](std::size_t /*i*/) {});
}

task<> reduce_round(exchange& x, std::uint32_t part, message_parts parts, const_local_mr_slice all,
                    local_mr_slice sum, local_mr_slice sums, std::size_t segment_bytes) {
  const unsigned rank = x.rank();
  const unsigned size = x.size();
  const std::size_t longest = parts.longest();
  const std::size_t bytes = std::clamp<std::size_t>(longest, 1, segment_bytes);
  const std::size_t per_round = segments_of(longest, bytes);
  const ring_rounds rounds{part * part_steps, per_round, per_round * (size - 1)};
  // Few slots stay in the caches. Without `sums`, a sum is in its slot until a round later.
  const bool has_sums = !sums.empty();
  const std::size_t slots =
      std::min(rounds.count, has_sums ? segment_window : per_round + 2 * segment_window);
  const local_mr_slice memory = x.scratch(slots * bytes);
  const auto slot_of = [&](std::size_t i, const const_local_mr_slice& segment) {
    return segment.empty() ? local_mr_slice{}
                           : memory.slice(i % slots * bytes, segment.size_bytes());
  };
  const unsigned first = (rank + size - 1) % size;
  segment_cursor sends{parts, first, bytes, per_round};
  segment_cursor receives{parts, (first + size - 1) % size, bytes, per_round};
  segment_cursor operands{receives};
  segment_cursor results{receives};
  const auto sent = [&](std::size_t i) -> const_local_mr_slice {
    if (i < per_round) return sends.next(all);
    return has_sums ? sends.next(const_local_mr_slice{sums})
                    : const_local_mr_slice{slot_of(i - per_round, sends.next(all))};
  };
  const auto into = [&](std::size_t i) { return slot_of(i, receives.next(all)); };
  const auto result_of = [&](std::size_t i, const local_mr_slice& slot) {
    if (has_sums) return results.next(sums);
    const bool is_last = i >= rounds.count - per_round;
    return is_last ? segment_of(sum, i % per_round, bytes) : slot;
  };
  const auto received = [&](std::size_t i) {
    const const_local_mr_slice operand = operands.next(all);
    const local_mr_slice slot = slot_of(i, operand);
    const local_mr_slice result = result_of(i, slot);
    if (operand.empty()) return;
    if (rank == 0) {
      x.combine(result, operand, slot);
    } else {
      x.combine(result, slot, operand);
    }
  };
  co_await run_ring(x, rounds, sent, into, received);
}

}  // namespace cordma::detail
