#pragma once

#include "queue/event_queue.hpp"

#include <infiniband/verbs.h>

#include <atomic>
#include <cstdint>

namespace softverbs {

class group_membership;
class node;

/// The context of one ibv_open_device of soft0; the program holds `verbs.context`.
struct context {
  verbs_context verbs;  // First: pointers to it are cast back.
  node* local_node;
  async_event_queue async;
  std::atomic<bool> uses_groups{false};  ///< a user of the node's group_membership
};

/// The device soft0. A call recognizes objects of soft0 by this address.
extern ibv_device soft_device;

[[nodiscard]] inline bool is_soft(const ibv_context* ctx) noexcept {
  return ctx->device == &soft_device;
}
[[nodiscard]] context& soft(ibv_context* ctx) noexcept;  ///< the context that contains `ctx`

/// Opens soft0; the context gets the entry points of `verbs`. \errors std::system_error and
/// std::bad_alloc.
ibv_context* open_context(const verbs_context& verbs);
void close_context(ibv_context* ctx) noexcept;

/// The multicast groups of the process; the context is their user from now on. \errors
/// std::system_error and std::bad_alloc.
[[nodiscard]] group_membership& groups_of(ibv_context* ctx);

inline constexpr std::uint32_t message_bytes_max = 1u << 30;
inline constexpr std::uint32_t request_sges_max = 32;  ///< limit of one request
inline constexpr std::uint32_t rd_atomic_max = 128;    ///< READs and atomics in flight, either way
inline constexpr std::uint32_t inline_bytes_max = 1024;
inline constexpr int port_mtu_bytes = 4096;
inline constexpr int gid_table_size = 128;  ///< entries beyond gid_count() are empty
inline constexpr int completion_vectors = 1;

/// The limits of soft0. Immutable: a test that pretends limits (softverbs.h) publishes a new
/// object.
struct device_limits : ibv_device_attr {
  std::uint32_t message_bytes;  ///< the port's max_msg_sz
  std::uint32_t inline_bytes;   ///< ibv_qp_cap::max_inline_data
  bool resize_cq;
  bool writes_atomically;  ///< ATOMIC WRITE
  ibv_packet_pacing_caps pacing;
};

/// The limits that soft0 reports and enforces, including pretended ones.
[[nodiscard]] const device_limits& limits() noexcept;
[[nodiscard]] const device_limits& true_limits() noexcept;
/// Makes limits() return a copy of `pretended`; earlier results stay valid. \thread one at a time.
void pretend(const device_limits& pretended);
/// Makes limits() return those, which stay valid; null: the true ones. Returns what was before.
const device_limits* exchange_limits(const device_limits* pretended) noexcept;

}  // namespace softverbs
