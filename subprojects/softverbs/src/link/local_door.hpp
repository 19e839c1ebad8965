#pragma once

#include "link/doors.hpp"

#include <cstdint>

namespace softverbs {

/// Binds and listens on `softverbs.<slot>`. None: taken (EADDRINUSE), or errno.
unique_fd open_local_door(std::uint16_t slot) noexcept;

/// Reads a hello and the one descriptor with it. False when anything about them is wrong, or
/// nothing came.
bool receive_hello(int socket, hello& words, unique_fd& memory) noexcept;

/// Whether the other end of `socket` may talk to us, and is the process that owns the door of
/// `slot`.
bool is_owner_of(int socket, std::uint16_t slot) noexcept;

}  // namespace softverbs
