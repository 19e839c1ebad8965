#pragma once

#include <cordma/verbs/queue_pair.hpp>

namespace cordma::verbs {

/// Returns true if the calls of `queue_pair` can move a reliable connection from one state to the
/// other. The transitions are a subset of IBTA 10.3.1, without changes within RTS and those through
/// SQD.
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
