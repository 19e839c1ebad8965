#pragma once

#include "queue/completion_queue.hpp"

#include <cstdint>

namespace softverbs {

/// Null with errno when an argument is wrong.
completion_queue* make_completion_queue(ibv_context* ctx, std::uint32_t cqe, void* cq_context,
                                        ibv_comp_channel* channel, std::uint32_t vector,
                                        bool timestamps = false);

}  // namespace softverbs
