#pragma once

#include <infiniband/verbs.h>

namespace cordma::detail {

/// The call of a failure that tells of a device without ATOMIC WRITE.
inline constexpr const char* atomic_write_call = "ibv_wr_atomic_write";

/// Posts a chain of which some requests have a call of their own: ATOMIC WRITEs and binds of type-1
/// windows. The word of an ATOMIC WRITE is the first slice. Returns and sets `bad` as
/// ibv_post_send(3). Each such request is a doorbell, and so is each row of other requests.
[[nodiscard]] int post_chain(ibv_qp* qp, ibv_send_wr* first, ibv_send_wr** bad) noexcept;

}  // namespace cordma::detail
