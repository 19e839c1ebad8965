#include "queue_pair_state.hpp"

#include "failures.hpp"

#include <string>

namespace cordma::verbs {

const char* to_string(queue_pair_state state) noexcept {
  switch (state) {
    case queue_pair_state::reset: return "RESET";
    case queue_pair_state::init: return "INIT";
    case queue_pair_state::rtr: return "RTR";
    case queue_pair_state::rts: return "RTS";
    case queue_pair_state::sqd: return "SQD";
    case queue_pair_state::sqe: return "SQE";
    case queue_pair_state::error: return "ERROR";
  }
  return "unknown";
}

const char* to_string(queue_pair_type type) noexcept {
  switch (type) {
    case queue_pair_type::rc: return "RC";
    case queue_pair_type::uc: return "UC";
    case queue_pair_type::ud: return "UD";
    case queue_pair_type::xrc_initiator: return "XRC initiator";
    case queue_pair_type::xrc_target: return "XRC target";
  }
  return "unknown";
}

void check_transition(queue_pair_state from, queue_pair_state to) {
  using enum queue_pair_state;
  if (is_legal_transition(from, to)) return;
  std::string allowed;
  for (const queue_pair_state next : {reset, init, rtr, rts, error}) {
    if (!is_legal_transition(from, next)) continue;
    if (!allowed.empty()) allowed += ", ";
    allowed += to_string(next);
  }
  detail::throw_failure(errc::illegal_transition, "ibv_modify_qp",
                        detail::detail_text("%s to %s; from %s it goes to: %s", to_string(from),
                                            to_string(to), to_string(from), allowed.c_str()));
}

}  // namespace cordma::verbs
