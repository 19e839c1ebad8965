#pragma once

#include "link/listeners.hpp"

#include <infiniband/verbs.h>
#include <netinet/in.h>

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace softverbs {

inline constexpr std::uint16_t unicast_lid_max = 0xbfff;

/// The LIDs of an InfiniBand subnet, as this host sees them. A host's LID is the low half of its
/// IPv4 address, unless SOFTVERBS_LID says something else.
class subnet {
 public:
  /// Reads a list of `LID` (this host's) and `LID=ADDRESS`, separated by commas. `own`: this host's
  /// IPv4 address in host order, unless the list has another one of this host. \errors
  /// std::system_error (EINVAL), which says what is wrong.
  subnet(std::string_view list, std::uint32_t own);

  [[nodiscard]] std::uint16_t own_lid() const noexcept { return own_.lid; }
  [[nodiscard]] std::uint32_t own_address() const noexcept { return own_.address; }
  /// The IPv4 address of the host that has this LID. A LID that is not listed counts as the low
  /// half of an address whose high half is ours. nullopt: no unicast LID.
  [[nodiscard]] std::optional<std::uint32_t> address_of(std::uint16_t lid) const noexcept;
  [[nodiscard]] std::uint16_t lid_of(std::uint32_t address) const noexcept;

 private:
  struct host {
    std::uint16_t lid = 0;
    std::uint32_t address = 0;
  };
  void take(std::string_view entry);
  void check() const;

  host own_;
  std::vector<host> listed_;  ///< the listed hosts, without this one
};

/// Reads SOFTVERBS_LINK_LAYER and SOFTVERBS_LID at the first call that succeeds. \thread one at a
/// time. \errors std::system_error (EINVAL) for bad values.
void read_port_settings(const tcp_settings& tcp);

/// The subnet of an InfiniBand port. Null: the port is an Ethernet port, or nobody opened it yet.
[[nodiscard]] const subnet* port_subnet() noexcept;
[[nodiscard]] inline bool is_infiniband() noexcept { return port_subnet() != nullptr; }

/// The GID of an InfiniBand port: the default subnet prefix and a GUID, whose low half is the
/// host's IPv4 address.
[[nodiscard]] union ibv_gid port_gid() noexcept;

/// Returns the IP address, as a RoCE GID, of the host to which a path leads. The path's LID counts
/// on an InfiniBand port, or its GID when the LID is zero. nullopt: the path has no address for
/// this port.
[[nodiscard]] std::optional<union ibv_gid> host_of(const ibv_ah_attr& path) noexcept;

/// The LID of a host of node_address, all zero being this one; 0 on Ethernet.
[[nodiscard]] std::uint16_t lid_of(const in6_addr& host) noexcept;

}  // namespace softverbs
