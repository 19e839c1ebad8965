#pragma once

#include "queue/event_queue.hpp"

#include <infiniband/verbs.h>

#include <atomic>

namespace softverbs {

class node;

/// One ibv_open_device of soft0. `verbs.context` is what the program holds.
struct context {
  verbs_context verbs;
  node* home;
  async_event_queue async;
};

/// soft0 itself; its address is how a call tells whose object it got.
extern ibv_device soft_device;

[[nodiscard]] inline bool is_soft(const ibv_context* ctx) noexcept {
  return ctx->device == &soft_device;
}
[[nodiscard]] context& soft(ibv_context* ctx) noexcept;  ///< the context around it

/// What soft0 can do; what a test pretended (softverbs.h) is in it. Enforced by the objects.
[[nodiscard]] const ibv_device_attr& limits() noexcept;

inline constexpr std::uint32_t message_bytes_max = 1u << 30;
inline constexpr std::uint32_t inline_bytes_max = 1024;
inline constexpr int port_mtu_bytes = 4096;

}  // namespace softverbs
