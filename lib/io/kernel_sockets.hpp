#pragma once

#include "socket_calls.hpp"

namespace cordma::detail {

/// The kernel's sockets.
socket_calls& kernel_sockets() noexcept;

}  // namespace cordma::detail
