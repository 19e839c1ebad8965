#pragma once

#include "qp/queue_pair.hpp"

#include <cstddef>
#include <cstdint>
#include <span>

// Builds a request in its place of the send ring, behind the posted ones; what ibv_post_send and
// ibv_wr_* share. Called by whoever holds `batch`, or slot->send while no batch is open;
// open_request() first, the others on the request that it opened. They return 0, or the errno value
// of the verb. The caller then sets `posted` to `built`, or takes all back.

namespace softverbs {

inline constexpr std::uint32_t qkey_controlled = 0x80000000;

/// Posting needs a route to the peer, or a state in which the request will be flushed.
bool accepts_sends(ibv_qp_state state) noexcept;
int open_request(queue_pair& qp, ibv_wr_opcode opcode, std::uint64_t wr_id,
                 unsigned flags) noexcept;
int set_gather_list(queue_pair& qp, std::span<const ibv_sge> list) noexcept;
/// Then append_inline() for each piece.
int begin_inline(queue_pair& qp) noexcept;
int append_inline(queue_pair& qp, const void* bytes, std::size_t size) noexcept;
/// Of a READ or a WRITE: what has data where atomics have their operands.
void set_remote(queue_pair& qp, std::uint64_t address, std::uint32_t rkey) noexcept;
/// UD: the address is copied, the handle may be destroyed after the post.
int set_datagram(queue_pair& qp, const ibv_ah* ah, std::uint32_t remote_qpn,
                 std::uint32_t remote_qkey) noexcept;
/// Whether `window` is of the `type` that this way of binding is for, and what it is bound to.
int check_bind(const queue_pair& qp, const ibv_mw* window, ibv_mw_type type,
               const ibv_mw_bind_info& info) noexcept;

/// After check_bind() of the same.
void set_bind(queue_pair& qp, const ibv_mw& window, std::uint32_t rkey,
              const ibv_mw_bind_info& info) noexcept;

/// Fills the ibv_wr_* functions of the handle; what `send_ops` does not name answers EINVAL.
void set_wr_api(queue_pair& qp) noexcept;

}  // namespace softverbs
