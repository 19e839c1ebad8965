#pragma once

#include <cordma/detail/base/export.hpp>

#include <infiniband/verbs.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace cordma::verbs {

enum class gid_type : std::uint8_t { ib, roce_v1, roce_v2 };

/// Row of a port's GID table: an address that a queue pair can have on that port.
struct gid_entry {
  ibv_gid gid{};
  std::uint32_t index = 0;
  gid_type type = gid_type::ib;
  std::uint32_t netdev_ifindex = 0;  ///< The network interface behind a RoCE GID; 0: none.
};

/// Criteria for choosing a GID; all are optional.
struct gid_request {
  enum class ip : std::uint8_t { any, v4, v6 };

  std::optional<std::uint32_t> index{};  ///< Exactly this row; an error when it cannot be used.
  std::optional<ibv_gid> local_ip{};     ///< Preferred: the address of the bootstrap socket.
  ip family = ip::any;                   ///< Preferred.
};

/// Chooses the best row for `request`. What it names weighs most (local_ip, then family); then RoCE
/// v2 over v1; then IPv4-mapped over IPv6 global over link-local; then the lower index. Zero GIDs
/// are never chosen. The function is pure.
/// \errors  errc::no_gid: no usable row, or `request.index` names none (the detail lists the rows).
CORDMA_EXPORT gid_entry choose_gid(std::span<const gid_entry> table,
                                   const gid_request& request = {});

CORDMA_EXPORT std::string to_string(
    const ibv_gid& gid);  ///< Formats an IPv6 address: "::ffff:10.0.0.1".
CORDMA_EXPORT const char* to_string(gid_type type) noexcept;

}  // namespace cordma::verbs
