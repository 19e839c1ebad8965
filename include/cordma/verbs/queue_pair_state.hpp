#pragma once

#include <infiniband/verbs.h>

#include <string>

namespace cordma::verbs {

/// The states of a queue pair (IBTA 10.3.1, ibv_query_qp(3)).
enum class queue_pair_state : int {
  reset = IBV_QPS_RESET,  ///< Just made: nothing can be posted.
  init = IBV_QPS_INIT,    ///< Receives can be posted.
  rtr = IBV_QPS_RTR,      ///< Ready to receive: knows its peer.
  rts = IBV_QPS_RTS,      ///< Ready to send.
  sqd = IBV_QPS_SQD,      ///< Send queue drained. cordma never goes there.
  sqe = IBV_QPS_SQE,      ///< Send queue error. A reliable connection never goes there.
  error = IBV_QPS_ERR,    ///< Everything posted completes as flushed.
};

const char* to_string(queue_pair_state state) noexcept;  ///< "RTS", as the specification says it.

/// Whether a reliable connection goes from one state to the other by the calls of `queue_pair`.
/// A subset of IBTA 10.3.1: changes within RTS and those through SQD are left out.
constexpr bool is_legal_transition(queue_pair_state from, queue_pair_state to) noexcept {
  using enum queue_pair_state;
  switch (to) {
    case reset: return true;
    case init: return from == reset || from == init;
    case rtr: return from == init;
    case rts: return from == rtr;
    case error: return from != reset;  // The kernel refuses it; nothing is posted there anyway.
    default: return false;
  }
}

/// \errors  errc::illegal_transition: the detail names both states and those allowed.
void check_transition(queue_pair_state from, queue_pair_state to);

}  // namespace cordma::verbs
