#pragma once

#include "queue/event_queue.hpp"

#include <infiniband/verbs.h>

#include <atomic>
#include <cstdint>

namespace softverbs {

class node;

/// One ibv_open_device of soft0. `verbs.context` is what the program holds.
struct context {
  verbs_context verbs;  // First: pointers to it are cast back.
  node* local_node;
  async_event_queue async;
};

/// soft0 itself; its address is how a call tells whose object it got.
extern ibv_device soft_device;

[[nodiscard]] inline bool is_soft(const ibv_context* ctx) noexcept {
  return ctx->device == &soft_device;
}
[[nodiscard]] context& soft(ibv_context* ctx) noexcept;  ///< the context around it

/// ibv_open_device of soft0; `verbs` is the table of entry points that the context gets. Throws
/// std::system_error and std::bad_alloc.
ibv_context* open_context(const verbs_context& verbs);
void close_context(ibv_context* ctx) noexcept;

inline constexpr std::uint32_t message_bytes_max = 1u << 30;
inline constexpr std::uint32_t request_sges_max = 32;  ///< of one request
inline constexpr std::uint32_t rd_atomic_max = 128;    ///< READs and atomics in flight, either way
inline constexpr std::uint32_t inline_bytes_max = 1024;
inline constexpr int port_mtu_bytes = 4096;
inline constexpr int gid_table_size = 128;  ///< entries beyond gid_count() are empty
inline constexpr int completion_vectors = 1;

/// What soft0 can do. Immutable: a test that pretends (softverbs.h) puts another in its place.
struct device_limits : ibv_device_attr {
  std::uint32_t message_bytes;  ///< the port's max_msg_sz
  std::uint32_t inline_bytes;   ///< ibv_qp_cap::max_inline_data
  bool resize_cq;
};

/// What soft0 says that it can do, and enforces. What a test pretended is in it.
[[nodiscard]] const device_limits& limits() noexcept;
[[nodiscard]] const device_limits& true_limits() noexcept;
/// From now on limits() is a copy of this; what it gave before stays valid. Thread: one at a time.
void pretend(const device_limits& pretended);

}  // namespace softverbs
