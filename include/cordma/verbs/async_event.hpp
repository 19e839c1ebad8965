#pragma once

#include <cordma/verbs/device.hpp>

#include <infiniband/verbs.h>

#include <optional>

namespace cordma::verbs {

/// Asynchronous event of the device (ibv_get_async_event(3)), already acknowledged. Compare its
/// pointers with live owners only: the object may have been destroyed since.
struct async_event {
  ibv_event_type kind{};
  ibv_cq* cq = nullptr;    ///< Set for CQ_ERR only.
  ibv_qp* qp = nullptr;    ///< Set for the QP_* kinds, COMM_EST, SQ_DRAINED and PATH_MIG*.
  ibv_srq* srq = nullptr;  ///< Set for the SRQ_* kinds.
  int port = 0;            ///< Set for the kinds of a port; 0: the event names no port.
};

/// Returns the kind in words: "local work queue catastrophic error".
const char* to_string(ibv_event_type kind) noexcept;

/// Reads one event of the context's async fd; empty when there is none now. The event is
/// acknowledged before the return. Destroying a queue pair, completion queue or SRQ waits for its
/// unacknowledged events, and would hang in the thread that has one.
/// \thread  one at a time. \errors  EIO: the device is gone. \cost  one system call.
[[nodiscard]] std::optional<async_event> next_async_event(context& ctx);

}  // namespace cordma::verbs
