#pragma once

#include <cordma/verbs/gid.hpp>

#include <optional>

struct sockaddr;

namespace cordma::verbs {

/// Returns the GID that a RoCE port has for this address: IPv4 is mapped (::ffff:a.b.c.d), IPv6
/// kept. Empty for other families.
std::optional<ibv_gid> gid_of(const sockaddr& address) noexcept;

bool same_gid(const ibv_gid& a, const ibv_gid& b) noexcept;

}  // namespace cordma::verbs
