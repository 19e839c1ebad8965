#pragma once

#include <infiniband/verbs.h>

namespace cordma::detail {

/// The call of a failure that tells of a device without ATOMIC WRITE.
inline constexpr const char* atomic_write_call = "ibv_wr_atomic_write";
/// The call of a failure that tells of an opcode of a vendor.
inline constexpr const char* vendor_opcode_call = "ibv_send_wr::opcode";

/// Returns true if a request has this opcode: those of ibv_post_send(3) without TSO, and
/// ATOMIC WRITE.
[[nodiscard]] constexpr bool is_known(ibv_wr_opcode opcode) noexcept {
  return unsigned(opcode) < unsigned{IBV_WR_TSO} || opcode == IBV_WR_ATOMIC_WRITE;
}

/// Returns the name of the call that posts a request; null: one that the device did not name.
[[nodiscard]] const char* posting_call(const ibv_send_wr* wr) noexcept;

/// Posts a chain of which some requests have a call of their own: ATOMIC WRITEs and binds of type-1
/// windows. The word of an ATOMIC WRITE is the first slice. Returns and sets `bad` as
/// ibv_post_send(3). Each such request is a doorbell, and so is each row of other requests.
[[nodiscard]] int post_chain(ibv_qp* qp, ibv_send_wr* first, ibv_send_wr** bad) noexcept;

}  // namespace cordma::detail
