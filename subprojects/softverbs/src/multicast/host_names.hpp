#pragma once

#include "link/socket_names.hpp"
#include "link/unique_fd.hpp"

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

// The groups of this host's processes, as abstract Unix names. The kernel has them, and drops those
// of a process that dies. Two kinds: `softverbs.member.<uid>.<slot>.<MGID>.<random>` says that a
// process is a member; `softverbs.watcher.<random>` belongs to a process that sends to groups.

namespace softverbs {

/// Binds a name that makes the process of `slot` a member until it is closed. Null with errno.
unique_fd bind_member(std::uint16_t slot, const union ibv_gid& group) noexcept;

/// Binds a watcher's name. Datagrams to it come with their sender's credentials. Null with errno.
unique_fd bind_watcher() noexcept;

/// Sends a datagram to all watchers of this host, from one of them. A watcher whose
/// queue is full misses the datagram. An empty one asks for another look at the names.
void tell_watchers(int watcher, std::span<const std::byte> datagram) noexcept;

/// News that came for a watcher.
struct watcher_news {
  bool any = false;       ///< a datagram came: the names may have changed
  bool trusted = false;   ///< from a user that we accept
  std::size_t bytes = 0;  ///< length of the datagram; more than fits counts as none
};
/// Takes one datagram, if there is one. Never blocks.
watcher_news take_news(int watcher, std::span<std::byte> room) noexcept;

/// Reads the names of this host's members, of users that we accept.
class member_names {
 public:
  struct member {
    std::uint16_t slot = 0;
    union ibv_gid group;
  };
  member_names() noexcept;
  /// The next member; nullopt: that was the last. Any user may have bound these names.
  std::optional<member> next() noexcept;

 private:
  listening_names names_;
};

}  // namespace softverbs
