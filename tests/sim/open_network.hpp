#pragma once

#include <cordma/runtime/runtime.hpp>

#include <cstdint>

namespace cordma::test {

/// Port at which programs of simulated hosts listen.
inline constexpr std::uint16_t sim_port = 7471;

/// Options of a host that serves all others of its world.
inline runtime_options open_network() {
  runtime_options o;
  o.connections.insecure = true;
  return o;
}

}  // namespace cordma::test
