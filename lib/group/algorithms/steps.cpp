#include "steps.hpp"

#include "group/algorithm_table.hpp"
#include "in_flight.hpp"

#include <algorithm>

namespace cordma::detail {

std::size_t element_segment(const collective_call& call, const algorithm_table& table) noexcept {
  const std::size_t element = call.element_bytes();
  return std::max<std::size_t>(table.segment_bytes() / element, 1) * element;
}

element_segments::element_segments(exchange& x, const collective_call& call,
                                   const algorithm_table& table)
    : bytes{element_segment(call, table)},
      slots{x.scratch(std::min(call.in.size_bytes(), segment_window * bytes))} {}

task<> run_step(exchange& x, move_step step, std::size_t segment_bytes) {
  const std::uint32_t first = step.part * part_steps;
  const std::size_t count =
      segments_of(std::max(step.sent.size_bytes(), step.received.size_bytes()), segment_bytes);
  in_flight<incoming, segment_window> receives;
  in_flight<outgoing, segment_window> sends;
  std::size_t posted = 0;
  for (std::size_t i = 0; i < count; ++i) {
    for (; posted < count && !receives.is_full(); ++posted) {
      const auto number = first + std::uint32_t(posted);
      receives.post(x, step.from, number, segment_of(step.received, posted, segment_bytes));
      sends.post(x, step.to, number, segment_of(step.sent, posted, segment_bytes));
    }
    co_await receives.oldest();
    co_await sends.oldest();
  }
}

task<> run_step(exchange& x, combine_step step, const element_segments& segments) {
  const std::uint32_t first = step.part * part_steps;
  const std::size_t count =
      segments_of(std::max(step.sent.size_bytes(), step.sum.size_bytes()), segments.bytes);
  const auto slot_of = [&](std::size_t i, std::size_t length) {
    return segments.slots.slice(i % segment_window * segments.bytes, length);
  };
  in_flight<incoming, segment_window> receives;
  in_flight<outgoing, segment_window> sends;
  std::size_t posted = 0;
  for (std::size_t i = 0; i < count; ++i) {
    for (; posted < count && !receives.is_full(); ++posted) {
      const auto number = first + std::uint32_t(posted);
      const std::size_t length = segment_of(step.sum, posted, segments.bytes).size_bytes();
      if (length != 0) {
        receives.post(x, step.from, number, slot_of(posted, length));
      } else {
        receives.post(x, step.from, number, local_mr_slice{});
      }
      sends.post(x, step.to, number, segment_of(step.sent, posted, segments.bytes));
    }
    co_await receives.oldest();
    co_await sends.oldest();
    const local_mr_slice sum = segment_of(step.sum, i, segments.bytes);
    if (sum.empty()) continue;
    const const_local_mr_slice own = segment_of(step.operand, i, segments.bytes);
    const const_local_mr_slice received = slot_of(i, sum.size_bytes());
    if (step.from < x.rank()) {
      x.combine(sum, received, own);
    } else {
      x.combine(sum, own, received);
    }
  }
}

}  // namespace cordma::detail
