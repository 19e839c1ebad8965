#pragma once

#include "link/doors.hpp"

#include <cstdint>
#include <string>

namespace softverbs {

/// Binds and listens. None: taken by one whom we would talk to (EADDRINUSE), or errno.
unique_fd open_local_door(std::uint16_t slot, door_name kind = door_name::plain) noexcept;

/// Who has the plain names, in words for an error.
std::string holders_of_slots();

/// Reads a hello and the one descriptor with it. False when anything about them is wrong, or
/// nothing came.
bool receive_hello(int socket, hello& words, unique_fd& memory) noexcept;

/// Whether the other end of `socket` may talk to us, and is the process that owns a door of
/// `slot`.
bool is_owner_of(int socket, std::uint16_t slot) noexcept;

}  // namespace softverbs
