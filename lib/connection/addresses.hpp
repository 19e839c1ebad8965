#pragma once

#include <cordma/connection/connection_options.hpp>
#include <cordma/connection/endpoint.hpp>
#include <cordma/io/socket_address.hpp>

#include <vector>

namespace cordma {
class executor;
}

namespace cordma::detail {

/// Returns the addresses of an endpoint on the executor's host, the preferred first.
/// \errors as `socket_address::resolve`.
std::vector<socket_address> addresses_of(cordma::executor& executor, const endpoint& where);
/// Returns the address to listen on: an empty host is loopback, a name its preferred address.
socket_address listening_address(cordma::executor& executor, const endpoint& local);
endpoint endpoint_of(const socket_address& address);
/// \errors errc::not_authenticated: strangers reach the address, and may not be let in.
void check_reach(const socket_address& where, const connection_options& options);

}  // namespace cordma::detail
