#pragma once

#include <cordma/connection/endpoint.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace cordma {
class runtime;
struct group_options;
}  // namespace cordma

namespace cordma::detail {

/// Returns `group_options::host`, else a hash of `host_calls::boot_id`: containers of one host have
/// the same. \errors an errno: there is no boot_id; the detail names the option.
std::uint64_t host_number(runtime& rt, const group_options& options);

/// Returns true for what only this host can connect to: loopback's addresses, "localhost", and Unix
/// sockets. Asks no resolver.
bool is_this_host(const endpoint& where);

/// Returns true for 0.0.0.0 and ::, where one can listen, but not connect.
bool is_wildcard(std::string_view host) noexcept;

/// Returns an address by which other hosts reach this one, port 0: the GID's of the runtime's port,
/// where GIDs are IP addresses (RoCE). Else the one from which packets to `toward` leave; an empty
/// or wildcard `toward` takes the default route.
/// \errors an errno: names `group_options::listen`.
endpoint reachable_endpoint(runtime& rt, const std::string& toward);

}  // namespace cordma::detail
