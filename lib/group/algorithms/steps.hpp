#pragma once

#include "group/collective_call.hpp"
#include "group/exchange.hpp"

#include <cordma/coro/task.hpp>

#include <cstddef>
#include <cstdint>

namespace cordma::detail {

class algorithm_table;

/// The segments of a message that are in flight at once.
inline constexpr unsigned segment_window = 4;
/// Two ranks may meet in this many parts of an algorithm: the messages of part p are numbered from
/// p * part_steps on.
inline constexpr std::uint32_t part_steps = 1u << 28;

/// One step of an algorithm, on one rank: what it sends to a rank, and what it receives from the
/// same rank or from another. Empty memory: neither.
struct move_step {
  std::uint32_t part = 0;
  unsigned to = 0;
  const_local_mr_slice sent{};
  unsigned from = 0;
  local_mr_slice received{};
};
/// One step in which the received elements are combined with `operand`, the lower rank's on the
/// left, into `sum`. `sum` has the length of `operand`, and may be that or `sent`.
struct combine_step {
  std::uint32_t part = 0;
  unsigned to = 0;
  const_local_mr_slice sent{};
  unsigned from = 0;
  const_local_mr_slice operand{};
  local_mr_slice sum{};
};

/// Returns the length of a segment of whole elements, of which it has one at least.
[[nodiscard]] std::size_t element_segment(const collective_call& call,
                                          const algorithm_table& table) noexcept;

/// Segments of elements, and scratch memory where they are received.
struct element_segments {
  std::size_t bytes = 0;  ///< Whole elements: one at least.
  local_mr_slice slots{};
  /// Makes those of messages of up to the length of `call.in`.
  element_segments(exchange& x, const collective_call& call, const algorithm_table& table);
};

/// Does the step segment by segment, of which a few are in flight.
task<> run_step(exchange& x, move_step step, std::size_t segment_bytes);
task<> run_step(exchange& x, combine_step step, const element_segments& segments);

}  // namespace cordma::detail
