#pragma once

#include "qp/queue_pair.hpp"

#include <cstddef>
#include <cstdint>
#include <span>

// Builds the WQE of a request behind the posted ones, for ibv_post_send and ibv_wr_*. The caller
// holds `batch`, or slot->send while no batch is open. open_request() comes first; the other
// functions complete its request. All of these functions return 0 or the errno value of the verb.
// The caller then sets `posted` to `built`, or `built` to `posted`.

namespace softverbs {

inline constexpr std::uint32_t qkey_controlled = 0x80000000;

/// True if the QP accepts send requests: its state has a route, or flushes the request.
bool accepts_sends(ibv_qp_state state) noexcept;
int open_request(queue_pair& qp, ibv_wr_opcode opcode, std::uint64_t wr_id,
                 unsigned flags) noexcept;
int set_gather_list(queue_pair& qp, std::span<const ibv_sge> list) noexcept;
/// Starts inline data; call append_inline() for each piece.
int begin_inline(queue_pair& qp) noexcept;
int append_inline(queue_pair& qp, const void* bytes, std::size_t size) noexcept;
/// Sets the remote memory of a READ or a WRITE, whose data starts where atomics have operands.
void set_remote(queue_pair& qp, std::uint64_t address, std::uint32_t rkey) noexcept;
/// UD: copies the address, because the handle may be destroyed after the post.
int set_datagram(queue_pair& qp, const ibv_ah* ah, std::uint32_t remote_qpn,
                 std::uint32_t remote_qkey) noexcept;
/// Checks the type of a window and the region to which it is bound.
int check_bind(const queue_pair& qp, const ibv_mw* window, ibv_mw_type type,
               const ibv_mw_bind_info& info) noexcept;

/// Writes a bind request; call check_bind() first.
void set_bind(queue_pair& qp, const ibv_mw& window, std::uint32_t rkey,
              const ibv_mw_bind_info& info) noexcept;

/// Fills the ibv_wr_* functions of the handle. Operations outside `send_ops` answer EINVAL.
void set_wr_api(queue_pair& qp) noexcept;

}  // namespace softverbs
