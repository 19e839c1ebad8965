#include "multicast/membership.hpp"

#include "groups.hpp"
#include "multicast/host_names.hpp"
#include "node/node.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>
#include <catch2/catch.hpp>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <set>
#include <string>
#include <vector>

using namespace softverbs;
using softverbs::test::group;

namespace {

/// The groups of this process, with a user.
class user {
 public:
  user() { groups.acquire(used_); }
  ~user() {
    groups.release();
    node::release(local_node);
  }
  user(const user&) = delete;
  user& operator=(const user&) = delete;

  node& local_node = node::acquire();
  group_membership& groups = group_membership::of(local_node);

 private:
  std::atomic<bool> used_{false};
};

constexpr std::uint32_t many = 1000;

/// The slots that say on this host that they are members.
std::set<std::uint16_t> named(const ibv_gid& wanted) {
  std::set<std::uint16_t> slots;
  member_names names;
  while (const auto one = names.next())
    if (std::memcmp(&one->group, &wanted, sizeof wanted) == 0) slots.insert(one->slot);
  return slots;
}

std::set<std::uint16_t> known(user& is, const ibv_gid& wanted) {
  std::set<std::uint16_t> slots;
  const auto to = is.groups.members_of(wanted, clock::now());
  CHECK(to.ready <= clock::now());
  REQUIRE(to.members != nullptr);
  for (const node_address& one : *to.members) slots.insert(one.slot);
  return slots;
}

bool is_readable(int fd) {
  pollfd ready{fd, POLLIN, 0};
  return ::poll(&ready, 1, 0) == 1;
}

}  // namespace

TEST_CASE("a process is a member while a queue pair is attached", "[multicast]") {
  user is;
  const ibv_gid wanted = group(11);
  const std::uint16_t slot = is.local_node.slot();
  CHECK(is.groups.attach(wanted, 100, many, many) == 0);
  CHECK(is.groups.attach(wanted, 101, many, many) == 0);
  CHECK(is.groups.attach(wanted, 100, many, many) == 0);
  CHECK(is.groups.attached(wanted).count == 2);
  CHECK(named(wanted) == std::set{slot});
  CHECK(is.groups.is_attached(100));
  CHECK_FALSE(is.groups.is_attached(102));
  CHECK(is.groups.detach(wanted, 100) == 0);
  CHECK(is.groups.detach(wanted, 100) == EINVAL);
  CHECK(named(wanted) == std::set{slot});
  CHECK(is.groups.detach(wanted, 101) == 0);
  CHECK(named(wanted).empty());
  CHECK(is.groups.attached(wanted).count == 0);
  CHECK(is.groups.detach(group(12), 101) == EINVAL);
}

TEST_CASE("the last user of the groups ends all memberships", "[multicast]") {
  const ibv_gid wanted = group(13);
  {
    user is;
    REQUIRE(is.groups.attach(wanted, 100, many, many) == 0);
    CHECK(named(wanted).size() == 1);
  }
  CHECK(named(wanted).empty());
  user again;
  CHECK(again.groups.attached(wanted).count == 0);
}

TEST_CASE("groups and queue pairs of a group are limited", "[multicast]") {
  user is;
  CHECK(is.groups.attach(group(1), 100, 2, 2) == 0);
  CHECK(is.groups.attach(group(1), 101, 2, 2) == 0);
  CHECK(is.groups.attach(group(1), 102, 2, 2) == ENOMEM);
  CHECK(is.groups.attach(group(2), 102, 2, 2) == 0);
  CHECK(is.groups.attach(group(3), 102, 2, 2) == ENOMEM);
  CHECK(is.groups.attach(group(3), 102, 3, 0) == ENOMEM);
  CHECK(is.groups.attach(group(1), 101, 2, 2) == 0);  // The queue pair is attached already.
}

TEST_CASE("a sender knows each member of this host that came before it looked", "[multicast]") {
  user is;
  const ibv_gid wanted = group(14);
  const std::uint16_t own = is.local_node.slot();
  const std::uint16_t other = own == 5 ? 6 : 5;
  CHECK(known(is, wanted).empty());
  {
    const unique_fd name = bind_member(other, wanted);
    const unique_fd ours = bind_member(own, wanted);
    const unique_fd watcher = bind_watcher();
    REQUIRE((name && ours && watcher));
    tell_watchers(watcher.get(), {});
    CHECK(known(is, wanted) == std::set{other});
  }
  const unique_fd watcher = bind_watcher();
  tell_watchers(watcher.get(), {});
  CHECK(known(is, wanted).empty());
}

TEST_CASE("a watcher that is told more often than its queue holds has all news", "[multicast]") {
  user is;
  const ibv_gid wanted = group(15);
  const std::uint16_t other = is.local_node.slot() == 5 ? 6 : 5;
  CHECK(known(is, wanted).empty());
  const unique_fd watcher = bind_watcher();
  for (int n = 0; n < 600; ++n) tell_watchers(watcher.get(), {});
  const unique_fd name = bind_member(other, wanted);
  tell_watchers(watcher.get(), {});
  CHECK(known(is, wanted) == std::set{other});
}

TEST_CASE("names that no member would bind count for nothing", "[multicast]") {
  const ibv_gid wanted = group(16);
  std::string mgid;
  for (const std::uint8_t byte : wanted.raw) {
    char digits[3];
    std::snprintf(digits, sizeof digits, "%02x", unsigned{byte});
    mgid += digits;
  }
  std::vector<unique_fd> held;
  const auto bind = [&](const std::string& text) {
    held.push_back(listen_at(socket_name{text}));
    REQUIRE(held.back());
  };
  const std::string user = std::to_string(::geteuid());
  const std::string start = "softverbs.member." + user + ".";
  const std::string shorter = mgid.substr(1);
  const std::string no_group = std::string{mgid}.replace(24, 2, "0a");
  for (const std::string& text :
       {"1024." + mgid, "-1." + mgid, "." + mgid, "7." + shorter, "7.g" + shorter, "7." + no_group})
    bind(start + text + ".1");
  bind("softverbs.member.");
  bind("softverbs.member." + std::to_string(::geteuid() + 1) + ".7." + mgid + ".1");
  CHECK(named(wanted).empty());
  bind(start + "7." + mgid + ".1");
  CHECK(named(wanted) == std::set<std::uint16_t>{7});
}

TEST_CASE("a watcher hears its own user, and nothing beyond its room", "[multicast]") {
  const unique_fd from = bind_watcher();
  const unique_fd to = bind_watcher();
  REQUIRE((from && to));
  const std::array<std::byte, 8> bytes{};
  tell_watchers(from.get(), bytes);
  REQUIRE(is_readable(to.get()));
  std::array<std::byte, 8> room{};
  watcher_news news = take_news(to.get(), room);
  CHECK((news.any && news.trusted && news.bytes == 8));
  CHECK_FALSE(take_news(to.get(), room).any);
  tell_watchers(from.get(), bytes);
  news = take_news(to.get(), std::span{room}.first(7));
  CHECK((news.any && news.bytes == 0));
}

TEST_CASE("a relay from nowhere changes nothing", "[multicast]") {
  user is;
  const ibv_gid wanted = group(17);
  CHECK(known(is, wanted).empty());
  const unique_fd from = bind_watcher();
  std::array<std::byte, 100> bytes{};
  for (std::size_t length = 1; length < bytes.size(); ++length) {
    bytes.fill(static_cast<std::byte>(length));
    tell_watchers(from.get(), std::span{bytes}.first(length));
    CHECK(known(is, wanted).empty());
  }
}
