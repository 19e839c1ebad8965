#pragma once

#include "cm/message.hpp"
#include "link/unique_fd.hpp"

#include <cstdint>

// Names of rdma_cm on this host: abstract Unix sockets in the network namespace.

namespace softverbs::cm {

/// A name that a process binds. Several processes may share a name if all have `reuse`; none of
/// them listens.
struct bound_name {
  std::uint16_t space = 0;
  endpoint at;
  bool v6_only = false;  ///< an IPv6 address that leaves IPv4 to others
  bool reuse = false;
};

[[nodiscard]] bool is_wildcard(const in6_addr& address) noexcept;
/// True if requests for `wanted` go to a listener with this name.
[[nodiscard]] bool covers(const bound_name& name, std::uint16_t space,
                          const endpoint& wanted) noexcept;
/// 0, or the kernel's errno value for two names that exclude each other.
[[nodiscard]] int conflict_of(const bound_name& a, const bound_name& b) noexcept;

/// Makes the name ours: a socket that accepts packet connections to it. Null: `error` says why.
/// Two processes that claim conflicting names at once may both fail; they never both succeed.
/// `besides`: a claim of ours that this one will replace, or -1.
unique_fd claim(const bound_name& name, int besides, int& error) noexcept;

/// Connects to the process that has the name for requests to `wanted`. Null: `error` is
/// ECONNREFUSED if nobody has it, EAGAIN if its owner accepts nothing now, or a lack.
unique_fd connect_to_holder(std::uint16_t space, const endpoint& wanted, int& error) noexcept;

}  // namespace softverbs::cm
