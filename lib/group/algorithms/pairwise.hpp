#pragma once

#include "message_parts.hpp"

#include "group/exchange.hpp"

#include <cordma/coro/task.hpp>

namespace cordma::detail {

/// The transfers of a rank in one direction that are in flight at once.
inline constexpr unsigned pairwise_window = 8;

/// Sends each other rank its part of a message, beginning with the next rank.
task<> send_parts(exchange& x, message_parts parts, const_local_mr_slice message,
                  std::size_t segment_bytes);
/// Receives each other rank's part, beginning with the rank before.
task<> receive_parts(exchange& x, message_parts parts, local_mr_slice message,
                     std::size_t segment_bytes);

}  // namespace cordma::detail
