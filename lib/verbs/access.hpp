#pragma once

#include <cordma/verbs/access.hpp>

namespace cordma::verbs {

/// Returns true if a peer can reach such memory by a key.
constexpr bool is_remote(access flags) noexcept {
  return (flags & (access::remote_read | access::remote_write | access::remote_atomic)) !=
         access::none;
}

}  // namespace cordma::verbs
