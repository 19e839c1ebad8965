#pragma once

#include "link/listeners.hpp"

#include <cstdint>
#include <string>

namespace softverbs {

/// Binds and listens. Null with errno; EADDRINUSE: a process that we would connect to has the slot.
unique_fd open_local_listener(std::uint16_t slot,
                              listener_name kind = listener_name::plain) noexcept;

/// Claims that LID for this host, until the result is closed. \errors std::system_error: EADDRINUSE
/// if a process of this host says that the host has another LID.
unique_fd claim_lid(std::uint16_t lid);

/// The owners of the plain names, as text for an error message.
std::string holders_of_slots();

/// Reads a hello and its one descriptor. False if either is missing or invalid.
bool receive_hello(int socket, hello& words, unique_fd& memory) noexcept;

/// True if the peer of `socket` has an accepted uid and owns a listener of `slot`. True, too, if
/// the peer has our uid and ended, and the slot has no owner.
bool is_owner_of(int socket, std::uint16_t slot) noexcept;

}  // namespace softverbs
