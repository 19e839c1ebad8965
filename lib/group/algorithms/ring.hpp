#pragma once

#include "message_parts.hpp"

#include "group/exchange.hpp"

#include <cordma/coro/task.hpp>

namespace cordma::detail {

/// Gathers all parts on all ranks by a ring: this rank's part is `own`, which may lie in `all`.
/// `part` is that of the steps.
task<> gather_round(exchange& x, std::uint32_t part, message_parts parts, const_local_mr_slice own,
                    local_mr_slice all, std::size_t segment_bytes);
/// Sums up each part on the part's rank by a ring. `all` are this rank's operands; `sum` is of this
/// rank's part, and may lie in `all`. `sums` is empty, or is memory for the sums of other parts on
/// their way, which may be `all`: then `sum` lies in it. Segments have whole elements.
task<> reduce_round(exchange& x, std::uint32_t part, message_parts parts, const_local_mr_slice all,
                    local_mr_slice sum, local_mr_slice sums, std::size_t segment_bytes);

}  // namespace cordma::detail
