#pragma once

#include "queue/completion_queue.hpp"

#include <cstdint>

namespace softverbs {

/// Creates a completion queue. Null with errno if an argument is invalid.
completion_queue* make_completion_queue(ibv_context* ctx, std::uint32_t cqe, void* cq_context,
                                        ibv_comp_channel* channel, std::uint32_t vector,
                                        bool timestamps = false, ibv_pd* domain = nullptr);

}  // namespace softverbs
