#pragma once

#include "link/link.hpp"
#include "multicast/announcement.hpp"

#include <infiniband/verbs.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace softverbs {

/// The groups that a view keeps. A group that was used in the last group_use_time stays even beyond
/// this number. Otherwise senders to many groups would wait for members again and again.
inline constexpr std::size_t watched_groups_max = 256;
inline constexpr std::chrono::seconds group_use_time{1};
inline constexpr std::size_t far_members_max = 128;         ///< limit of a group, on other hosts
inline constexpr std::size_t far_members_of_host_max = 32;  ///< limit of a group, on one other host
inline constexpr std::chrono::seconds announcement_period{1};
/// A member on another host that is silent for so long has left.
inline constexpr std::chrono::seconds membership_time = 3 * announcement_period;
/// How long a sender leaves out a member that it cannot reach.
inline constexpr std::chrono::seconds suspension_time{1};

/// The known members of the groups that this process sends to. Announcements about other groups are
/// not kept. Callers lock.
class group_view {
 public:
  using time = clock::time_point;
  using members = std::vector<node_address>;

  /// Keeps the members of this group from now on. Groups that are no longer in use make room, the
  /// one used longest ago first. True if the group is new: its members on other hosts are unknown.
  /// \errors std::bad_alloc.
  bool watch(const union ibv_gid& group, time now);
  /// The time when the group was new; the clock's zero if nobody watches it.
  [[nodiscard]] time watched_since(const union ibv_gid& group) const noexcept;

  /// Replaces all members on this host: begin, one call for each member, end. A slot may come
  /// twice. \errors std::bad_alloc.
  void begin_host() noexcept;
  void add_on_host(const union ibv_gid& group, std::uint16_t slot);
  void end_host() noexcept;

  /// Takes what a process of another host announced. \errors std::bad_alloc.
  void hear(const in6_addr& host, const announcement& from, time now);
  /// Leaves out a member that cannot be reached, for a while.
  void suspend(const union ibv_gid& group, const node_address& member, time now) noexcept;

  /// The members to send to; null: nobody watches the group. The list is the same object until the
  /// members change. \errors std::bad_alloc.
  [[nodiscard]] std::shared_ptr<const members> members_of(const union ibv_gid& group, time now);
  void clear() noexcept { groups_.clear(); }

 private:
  struct member {
    node_address address;
    time expires;  ///< max(): while a name says so
    time suspended_until{};
    bool is_named = true;  ///< false between begin_host() and the name
  };
  struct watched {
    union ibv_gid group;
    time since;
    time used;
    std::vector<member> all;
    std::shared_ptr<const members> list;  ///< null: to be made
    time list_until{};                    ///< when somebody expires, or is no longer suspended
  };
  [[nodiscard]] watched* find(const union ibv_gid& group) noexcept;
  static void keep_far(watched& in, const node_address& from, time now);
  static void make_list(watched& of, time now);

  std::vector<watched> groups_;
};

}  // namespace softverbs
