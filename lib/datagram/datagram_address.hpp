#pragma once

#include <cordma/datagram/datagram.hpp>

namespace cordma {

/// Checks that an address can be one of a queue pair. \errors EINVAL: the detail names the field.
void check(const datagram_address& address, const char* call);

}  // namespace cordma
