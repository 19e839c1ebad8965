#pragma once

#include "link/link.hpp"
#include "link/unique_fd.hpp"

#include <array>
#include <chrono>
#include <cstdint>
#include <optional>

namespace softverbs {

inline constexpr std::uint16_t process_slots = 1u << 10;
inline constexpr unsigned hellos_pending_max = 32;  ///< visitors that said nothing yet
inline constexpr std::chrono::seconds hello_time_max{2};
inline constexpr std::uint16_t tcp_port_default = 47000;

/// The first bytes of a link, on both kinds; as long as a frame's header, so that it fits a ring.
struct hello {
  static constexpr std::uint64_t magic_value = 0x7362'7265'7674'666f;  // "oftverbs"
  static constexpr std::uint32_t version_value = 1;
  std::uint64_t magic = magic_value;
  std::uint32_t version = version_value;
  std::uint32_t slot = 0;  ///< the visitor's
  std::uint8_t reserved[48]{};

  [[nodiscard]] bool sound() const noexcept {
    return magic == magic_value && version == version_value && slot < process_slots;
  }
};
static_assert(sizeof(hello) == frame_align);

/// Names an epoll event's source in its 64 bits.
enum class source : std::uint8_t { wake, timer, local_door, tcp_door, visitor, link };
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
/// EPOLL_CTL_ADD, or MOD when it is there already.
bool watch(int epoll, int fd, std::uint32_t events, event_tag tag) noexcept;

/// What a door of a slot is called: `softverbs.<slot>`, or that and a random number behind it. Any
/// user may bind all of the first, and none of the second before its owner does.
enum class door_name : std::uint8_t { plain, random };

/// A process that said a sound hello. `from.host` is all zero when it came through the local door.
struct visitor {
  node_address from;
  unique_fd socket;
  unique_fd memory;
};

struct tcp_settings {
  in6_addr listen{};        ///< IPv4 as mapped
  bool listen_set = false;  ///< the user named it: it is an error when it cannot be had
  std::uint16_t port = tcp_port_default;
};
/// Of SOFTVERBS_LISTEN and SOFTVERBS_PORT. Throws std::system_error (EINVAL) when they are
/// nonsense.
tcp_settings tcp_settings_of_environment();

/// Opens a route to `slot` of this host: the door's owner is one of our uid, and gets a hello and a
/// new ring file. False: nobody of that kind is there. Never blocks.
bool connect_local(std::uint16_t slot, std::uint16_t own_slot, unique_fd& socket,
                   unique_fd& memory) noexcept;
/// Starts a TCP connection; its hello goes through the link. Never blocks.
bool connect_tcp(const in6_addr& host, std::uint16_t port, unique_fd& socket) noexcept;

/// Both doors of a node, and the visitors in them. Thread: callers lock.
class doors {
 public:
  using time = std::chrono::steady_clock::time_point;

  /// Claims a free slot by binding a name of it, from a random one on, and the TCP port that
  /// belongs to it. Throws std::system_error, which says who has all slots.
  void open(int epoll, const tcp_settings& tcp);
  void close() noexcept;
  [[nodiscard]] std::uint16_t slot() const noexcept { return slot_; }

  void on_connect(source door, time now) noexcept;
  /// A visitor's socket has something. Its visitor, when the hello is whole and sound.
  std::optional<visitor> on_visitor(unsigned index) noexcept;
  /// Sends away who said nothing for too long; opens a door again that had no descriptors left.
  void on_time(time now) noexcept;
  [[nodiscard]] time deadline() const noexcept;  ///< of the next on_time(), or max()

 private:
  struct pending {
    unique_fd socket;
    bool local = false;
    time late{};
    std::size_t received = 0;
    hello words;
  };
  bool claim_any(const tcp_settings& tcp);
  bool claim(std::uint16_t slot, const tcp_settings& tcp, door_name name, bool needs_port);
  std::optional<visitor> hear_local(pending& from) noexcept;
  std::optional<visitor> hear_tcp(pending& from) noexcept;

  int epoll_ = -1;
  std::uint16_t slot_ = 0;
  unique_fd local_;
  unique_fd tcp_;
  time paused_until_ = time::max();  ///< max: not paused
  std::array<pending, hellos_pending_max> pending_;
};

}  // namespace softverbs
