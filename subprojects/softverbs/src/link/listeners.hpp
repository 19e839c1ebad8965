#pragma once

#include "link/link.hpp"
#include "link/unique_fd.hpp"

#include <array>
#include <chrono>
#include <cstdint>
#include <optional>

namespace softverbs {

inline constexpr std::uint16_t process_slots = 1u << 10;
inline constexpr unsigned hellos_pending_max = 32;  ///< accepted sockets without a hello yet
inline constexpr std::chrono::seconds hello_time_max{2};
inline constexpr std::uint16_t tcp_port_default = 47000;
/// The port of rdma_cm's requests, behind those of the slots.
constexpr std::uint16_t cm_port(std::uint16_t first_port) {
  return static_cast<std::uint16_t>(first_port + process_slots);
}

/// The handshake: the first bytes of a link. The length is that of a frame's header, so that a
/// hello fits into a ring.
struct hello {
  static constexpr std::uint64_t magic_value = 0x7362'7265'7674'666f;  // "oftverbs"
  static constexpr std::uint32_t version_value = 1;
  std::uint64_t magic = magic_value;
  std::uint32_t version = version_value;
  std::uint32_t slot = 0;   ///< the sender's
  std::uint8_t relays = 0;  ///< 1: the route is its second one, see relay_slot()
  std::uint8_t reserved[47]{};

  [[nodiscard]] bool is_valid() const noexcept {
    return magic == magic_value && version == version_value && slot < process_slots && relays <= 1;
  }
  [[nodiscard]] std::uint16_t route_slot() const noexcept {
    const auto own = static_cast<std::uint16_t>(slot);
    return relays != 0 ? relay_slot(own) : own;
  }
};
static_assert(sizeof(hello) == frame_align);

/// The source of an epoll event, as the event's 64 bits carry it.
enum class source : std::uint8_t {
  wake,
  timer,
  local_listener,
  tcp_listener,
  pending,
  link,
  service
};
struct event_tag {
  source from;
  std::uint16_t index = 0;
  std::uint32_t generation = 0;

  [[nodiscard]] std::uint64_t packed() const noexcept {
    return std::uint64_t{generation} | std::uint64_t{index} << 32 |
           std::uint64_t{static_cast<std::uint8_t>(from)} << 48;
  }
  static event_tag unpacked(std::uint64_t bits) noexcept {
    return {static_cast<source>(bits >> 48), static_cast<std::uint16_t>(bits >> 32),
            static_cast<std::uint32_t>(bits)};
  }
};
/// EPOLL_CTL_ADD, or EPOLL_CTL_MOD if the descriptor is registered already.
bool watch(int epoll, int fd, std::uint32_t events, event_tag tag) noexcept;

/// The name of a slot's listener: `softverbs.<slot>`, or the same with a random number appended.
/// Any user can bind every plain name; nobody can guess a random one before its owner binds it.
enum class listener_name : std::uint8_t { plain, random };

/// A process that sent a valid hello. `from.host` is all zero if the local listener accepted it.
struct accepted_peer {
  node_address from;
  unique_fd socket;
  unique_fd memory;
};

struct tcp_settings {
  in6_addr listen{};        ///< IPv4 as mapped
  bool listen_set = false;  ///< the user chose `listen`: a failure to bind it is an error
  std::uint16_t port = tcp_port_default;
};
/// The settings from SOFTVERBS_LISTEN and SOFTVERBS_PORT. \errors std::system_error (EINVAL) if one
/// of them is malformed.
tcp_settings tcp_settings_of_environment();

/// Opens a route to `slot` of this host: connects to the listener that our uid owns, and sends a
/// hello with a new ring file. `slot` may be a relay_slot(). False: there is no such listener.
/// Never blocks.
bool connect_local(std::uint16_t slot, std::uint16_t own_slot, unique_fd& socket,
                   unique_fd& memory) noexcept;
/// Starts a TCP connection, from the address `source` if this host has it; the caller sends the
/// first bytes. Never blocks. False with errno.
bool connect_tcp(const in6_addr& host, std::uint16_t port, unique_fd& socket,
                 const in6_addr* source = nullptr) noexcept;

/// The two listeners of a node, and the accepted sockets that sent no hello yet. \thread callers
/// lock.
class listeners {
 public:
  using time = clock::time_point;

  /// Claims a free slot by binding one of its names and its TCP port; the search starts at a random
  /// slot. \errors std::system_error, which says who has all slots.
  void open(int epoll, const tcp_settings& tcp);
  void close() noexcept;
  [[nodiscard]] std::uint16_t slot() const noexcept { return slot_; }

  void on_connect(source listener, time now) noexcept;
  /// Handles bytes of an accepted socket. Returns the peer once the hello is complete and valid.
  std::optional<accepted_peer> on_hello(unsigned index) noexcept;
  /// Closes sockets whose hello is late, and resumes listening after a lack of descriptors.
  void on_time(time now) noexcept;
  [[nodiscard]] time deadline() const noexcept;  ///< time of the next on_time(), or max()

 private:
  struct pending {
    unique_fd socket;
    bool local = false;
    time late{};
    std::size_t received = 0;
    hello words;
  };
  bool claim_any(const tcp_settings& tcp);
  bool claim(std::uint16_t slot, const tcp_settings& tcp, listener_name name, bool needs_port);
  std::optional<accepted_peer> receive_local(pending& from) noexcept;
  std::optional<accepted_peer> receive_tcp(pending& from) noexcept;

  int epoll_ = -1;
  std::uint16_t slot_ = 0;
  unique_fd local_;
  unique_fd tcp_;
  time paused_until_ = time::max();  ///< max: not paused
  std::array<pending, hellos_pending_max> pending_;
};

}  // namespace softverbs
