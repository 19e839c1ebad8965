#pragma once

#include "link/doors.hpp"

#include <chrono>
#include <cstdint>

namespace softverbs {

/// Listens on the address and port. None: errno.
unique_fd open_tcp_door(const in6_addr& address, std::uint16_t port) noexcept;
/// Options of a socket that carries a link.
void tune(int socket) noexcept;
/// For how long the other end has owed an acknowledgement of bytes or probes; zero: it owes none.
std::chrono::milliseconds silence_of(int socket) noexcept;
/// The address of the other end, IPv4 as mapped.
bool address_of_peer(int socket, in6_addr& host) noexcept;
/// After an error of a socket by which we connected: says so on stderr when nobody listened there.
void hear_refusal(int socket, const in6_addr& host, std::uint16_t port) noexcept;

}  // namespace softverbs
