#pragma once

#include "link/unique_fd.hpp"
#include "multicast/announcement.hpp"
#include "multicast/group_network.hpp"
#include "multicast/group_view.hpp"
#include "node/own_addresses.hpp"
#include "node/service.hpp"

#include <infiniband/verbs.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

namespace softverbs {

class node;

inline constexpr std::uint32_t attached_groups_max = 256;  ///< limit of a process
inline constexpr std::uint32_t attached_qps_max = 128;     ///< limit of a group, in a process
/// How long a sender waits before its first datagram to a group, for members on other hosts to tell
/// of themselves.
inline constexpr std::chrono::milliseconds answer_time{100};
static_assert(answer_time < group_use_time && watched_groups_max >= attached_groups_max);
/// A process announces its groups at most so often.
inline constexpr std::chrono::milliseconds announcement_gap{20};

/// The multicast groups of a process: which of its queue pairs are attached, and which other
/// processes are members. Works from the first use by a context to the last close of such a
/// context. \thread any, unless a function says something else.
class group_membership final : public node_service {
 public:
  explicit group_membership(node& local) noexcept : local_node_{local} {}
  /// The group_membership of this node, made by the first call. \errors std::bad_alloc.
  static group_membership& of(node& local);

  /// Counts a context as a user, once; the first one starts the service. \errors std::system_error.
  void acquire(std::atomic<bool>& is_user);
  void release() noexcept;  ///< the last user ends all memberships

  // ---- members of this process
  /// Attaches a queue pair; one that is attached stays so. 0 or ENOMEM: a limit, or what binding a
  /// name failed with. The limits are at most attached_groups_max and attached_qps_max.
  int attach(const union ibv_gid& group, std::uint32_t qpn, std::uint32_t groups_max,
             std::uint32_t qps_max);
  int detach(const union ibv_gid& group, std::uint32_t qpn) noexcept;  ///< 0 or EINVAL
  [[nodiscard]] bool is_attached(std::uint32_t qpn) noexcept;
  struct attached_qps {
    std::array<std::uint32_t, attached_qps_max> numbers;
    std::uint32_t count = 0;
  };
  [[nodiscard]] attached_qps attached(const union ibv_gid& group) noexcept;

  // ---- members in other processes
  /// Makes the group known, and asks other hosts for its members. \errors std::bad_alloc.
  void watch(const union ibv_gid& group);
  struct destination {
    time ready;  ///< datagrams wait until then
    std::shared_ptr<const group_view::members> members;
  };
  /// The other processes that are members now, as far as this process knows. All memberships on
  /// this host that began before the call are known.
  [[nodiscard]] destination members_of(const union ibv_gid& group, time now) noexcept;
  void suspend(const union ibv_gid& group, const node_address& member, time now) noexcept;

  // ---- node_service
  [[nodiscard]] int descriptor() const noexcept override { return epoll_.get(); }
  void run(time now) noexcept override;
  [[nodiscard]] time deadline() const noexcept override {
    return time{time::duration{announce_at_.load()}};
  }
  void abandon() noexcept override;

 private:
  struct attachment {
    union ibv_gid group{};
    unique_fd name;  ///< shows on this host that this process is a member
    std::vector<std::uint32_t> qpns;
  };

  void start();
  void open();
  void close() noexcept;

  // The mutex of all memberships guards what follows, except `users_`, which `lifetime_` guards.
  [[nodiscard]] attachment* find(const union ibv_gid& group) noexcept;
  void take_news(time now);
  void take_announcements(time now);
  void take_announcement(const in6_addr& host, const announcement& from, time now);
  void read_names();
  void watch_at(const union ibv_gid& group, time now);
  [[nodiscard]] bool concerns_us(const announcement& from) noexcept;
  void announce(time now) noexcept;
  void announce_soon(time now) noexcept;

  node& local_node_;
  std::mutex lifetime_;  ///< held while the service starts or stops
  std::uint32_t users_ = 0;

  unique_fd epoll_;
  unique_fd watcher_;
  group_network network_;
  std::vector<attachment> attachments_;
  group_view view_;
  own_addresses own_addresses_;
  bool names_changed_ = true;
  unsigned relays_left_ = 0;
  time relays_again_{};
  time announced_at_{};
  std::atomic<time::rep> announce_at_{time::max().time_since_epoch().count()};
};

}  // namespace softverbs
