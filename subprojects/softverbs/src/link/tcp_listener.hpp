#pragma once

#include "link/listeners.hpp"

#include <chrono>
#include <cstdint>

namespace softverbs {

/// Listens on the address and port. Null with errno.
unique_fd open_tcp_listener(const in6_addr& address, std::uint16_t port) noexcept;
/// Sets the options of a socket that carries a link.
void tune(int socket) noexcept;
/// How long the peer has not acknowledged bytes or probes; zero if nothing is unacknowledged.
std::chrono::milliseconds unacknowledged_time(int socket) noexcept;
/// The address of the peer; IPv4 is mapped. False: no connected socket of IP.
bool address_of_peer(int socket, in6_addr& host) noexcept;
/// The address on this side of a socket of IP.
bool own_address(int socket, in6_addr& host) noexcept;
/// Warns on stderr, once, that nobody listens at the port of a host.
void warn_of_refusal(const in6_addr& host, std::uint16_t port) noexcept;
/// Call after an error of a connecting socket: warns on stderr if nobody listens at the peer.
void report_refusal(int socket, const in6_addr& host, std::uint16_t port) noexcept;

}  // namespace softverbs
