#pragma once

#include "finding.hpp"
#include "frames.hpp"

#include <cordma/connection/endpoint.hpp>
#include <cordma/runtime/runtime.hpp>

#include <infiniband/verbs.h>

#include <functional>
#include <optional>

namespace doctor {

/// Tries everything with a server (`cordma-doctor --serve`): the handshake, the MTU, each operation
/// in both directions, the settings of retries.
void try_peer(cordma::runtime& rt, const cordma::endpoint& server, report& r);

/// Returns the largest MTU, at most `most`, with which `works` is true; none: no MTU works.
/// \param works  is asked from the largest down, until it says yes.
std::optional<ibv_mtu> usable_mtu(ibv_mtu most, const std::function<bool(ibv_mtu)>& works);

/// Returns what mends a handshake that failed.
std::string mend_of_handshake(const cordma::failure& f, const cordma::endpoint& server);

}  // namespace doctor
