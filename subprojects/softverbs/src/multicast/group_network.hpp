#pragma once

#include "link/listeners.hpp"
#include "link/unique_fd.hpp"

#include <net/if.h>
#include <netinet/in.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace softverbs {

/// Announcements go to UDP port SOFTVERBS_PORT + this.
inline constexpr std::uint16_t announcement_port = process_slots;
inline constexpr std::size_t announced_routes_max = 64;  ///< interfaces or hosts to announce to

/// The way of announcements to other hosts and from them: IP multicast on the interfaces of this
/// host, or unicast to the hosts of SOFTVERBS_PEERS. Callers lock.
class group_network {
 public:
  /// Opens the way if other hosts may connect to `tcp.listen`, which then is the source of all that
  /// is sent. `peers`: SOFTVERBS_PEERS, may be null. False with errno: a system call failed.
  bool open(const tcp_settings& tcp, const char* peers);
  void close() noexcept;
  [[nodiscard]] bool is_open() const noexcept { return static_cast<bool>(socket_); }
  [[nodiscard]] int descriptor() const noexcept { return socket_.get(); }

  void send(std::span<const std::byte> datagram) noexcept;

  /// True if announcements of this host count: with SOFTVERBS_PEERS, only those of its hosts do.
  [[nodiscard]] bool hears(const in6_addr& host) const noexcept;

  struct received {
    in6_addr from{};       ///< IPv4 is mapped
    bool unicast = false;  ///< no other process of this host got a copy
    /// The length of the datagram. One that is too long for the room counts as none, and so does
    /// one that came to another address than SOFTVERBS_LISTEN.
    std::size_t bytes = 0;
  };
  /// Takes one datagram, if there is one. Never blocks.
  std::optional<received> receive(std::span<std::byte> room) noexcept;

 private:
  /// Where a datagram goes: the IP group on an interface, or a host.
  struct route {
    in6_addr to{};
    in6_addr from{};         ///< all zero: the system chooses
    unsigned interface = 0;  ///< 0: the system chooses
  };
  bool bind(std::uint16_t port) noexcept;
  void find_interfaces(const in6_addr& listen);
  void read_peers(const char* list, const in6_addr& listen);
  bool join(const route& on) noexcept;

  bool is_ip4_ = false;
  bool has_peers_ = false;
  in6_addr listen_{};
  std::uint16_t port_ = 0;
  unique_fd socket_;
  std::vector<route> routes_;
};

}  // namespace softverbs
