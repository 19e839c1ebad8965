#include "fuzz/script.hpp"
#include "link/ip_address.hpp"
#include "link/listeners.hpp"
#include "multicast/announcement.hpp"
#include "multicast/group.hpp"
#include "multicast/group_view.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <utility>
#include <vector>

// Each execution performs a script from the fuzzer's bytes. In the script, any hosts send
// announcements to a process that sends to groups, while time passes.

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size);

namespace softverbs::fuzz {

namespace {

using std::chrono::milliseconds;
using time = group_view::time;

constexpr int acts_max = 48;          ///< Acts of a script.
constexpr unsigned groups_count = 8;  ///< Groups that hosts speak of.

/// `n` as a group: the first ones have the form of IPv4, the other ones that of IPv6.
ibv_gid group(std::size_t n) noexcept {
  const auto low = static_cast<std::uint8_t>(n);
  if (n < groups_count) return {{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 239, 1, 1, low}};
  return {{0xff, 0x12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, static_cast<std::uint8_t>(n >> 8), low}};
}

in6_addr host(std::uint8_t n) noexcept {
  return {{{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, n}}};
}

/// A member as one number: its host's last byte, and its slot.
using member = std::uint32_t;
member member_of(const node_address& speaker) noexcept {
  return std::uint32_t{speaker.host.s6_addr[15]} << 16 | speaker.slot;
}

/// The beliefs that the process may have about one group.
struct belief {
  bool is_watched = false;
  time used{};
  std::vector<std::uint16_t> named;  ///< slots on this host
  std::map<member, time> heard;      ///< on other hosts, since the group is watched
  std::map<member, time> suspended;  ///< until then

  [[nodiscard]] bool leaves_out(member speaker, time now) const {
    const auto found = suspended.find(speaker);
    return found != suspended.end() && found->second > now;
  }
};

class stage {
 public:
  void run(script& in) {
    const int acts = begin(in.byte());
    for (int n = 0; n < acts && !in.done(); ++n) {
      perform(in);
      if (n % 4 == 0) check(static_cast<unsigned>(n) / 4 % groups_count);
    }
    check();
    // All hosts are silent, and no process of this one is a member.
    now_ += membership_time;
    view_.begin_host();
    view_.end_host();
    for (belief& one : groups_) one.named.clear();
    check();
    for (unsigned n = 0; n < groups_count; ++n)
      if (const auto list = view_.members_of(group(n), now_))
        must(list->empty(), "a member that is silent stays");
  }

 private:
  enum class act : std::uint8_t {
    watch,
    say,
    more_sayings,
    bytes,
    flood,
    compare,
    suspend,
    later,
    count
  };

  void perform(script& in) {
    switch (static_cast<act>(in.byte() % static_cast<unsigned>(act::count))) {
      case act::watch: return watch(in.byte());
      case act::say:
      case act::more_sayings: return say(in);
      case act::bytes: return say_bytes(in);
      case act::flood: {
        const std::uint8_t speaker = in.byte();
        return flood(static_cast<std::uint8_t>(1 + speaker % 8), 28, far_members_of_host_max + 2);
      }
      case act::compare: return compare(in);
      case act::suspend: return suspend(in);
      case act::later: {
        constexpr int steps[] = {0, 1, 10, 100, 500, 1000, 2500, 3000};
        now_ += milliseconds{steps[in.byte() % std::size(steps)]};
        return;
      }
      case act::count: return;
    }
  }

  void watch(std::uint8_t which) {
    const unsigned n = which % groups_count;
    const bool is_new = view_.watch(group(n), now_);
    must(view_.watched_since(group(n)) != time{}, "a group that is watched is not");
    must(is_new != groups_[n].is_watched, "a group is new twice, or old at once");
    groups_[n].is_watched = true;
    groups_[n].used = now_;
    // Groups that were not used for a while made room.
    for (unsigned other = 0; other < groups_count; ++other)
      if (groups_[other].is_watched && view_.watched_since(group(other)) == time{}) {
        must(groups_[other].used + group_use_time <= now_, "a group in use has made room");
        groups_[other] = {};
      }
  }

  static announcement members(script& in) noexcept {
    announcement words{};
    const std::uint8_t what = in.byte();
    words.what = what % 8 == 0 ? announcement::kind::query : announcement::kind::members;
    words.slot = what % 8 == 1 ? in.take<std::uint16_t>() : what / 8;
    words.count = static_cast<std::uint16_t>(1 + in.byte() % 4);
    const std::size_t first = in.byte();
    for (std::size_t n = 0; n < words.count; ++n) words.groups[n] = group((first + n) % 10);
    return words;
  }

  void say(script& in) {
    const std::uint8_t from = in.byte();
    announcement words = members(in);
    const unsigned lies = in.byte() % 16u;
    std::size_t size = words.bytes().size();
    if (lies < 4) {
      auto* const bytes = reinterpret_cast<std::uint8_t*>(&words);
      for (unsigned n = 0; n < lies; ++n) {
        const std::size_t at = in.take<std::uint16_t>() % size;
        bytes[at] = static_cast<std::uint8_t>(bytes[at] ^ in.byte());
      }
      if (lies == 3) size = in.take<std::uint16_t>() % (sizeof words + 1);
    }
    hear(host(static_cast<std::uint8_t>(1 + from % 8)),
         std::as_bytes(std::span{&words, 1}).first(size));
  }

  void say_bytes(script& in) {
    std::array<std::byte, sizeof(announcement) + 8> bytes{};
    const std::size_t size = in.take<std::uint16_t>() % (bytes.size() + 1);
    for (std::size_t n = 0; n < std::min<std::size_t>(size, 64); ++n)
      bytes[n] = std::byte{in.byte()};
    hear(host(1), std::span{bytes}.first(size));
  }

  /// Processes of a host say that they are members of the first group.
  void flood(std::uint8_t speaker, std::uint16_t first, std::uint16_t last) {
    announcement words{};
    words.what = announcement::kind::members;
    words.count = 1;
    words.groups[0] = group(0);
    for (words.slot = first; words.slot < last; ++words.slot) hear(host(speaker), words.bytes());
  }

  /// Some executions begin where limits are near; they are dear, and so are short. Returns how many
  /// acts follow.
  int begin(std::uint8_t what) {
    if (what != 255 && what % 32 != 0) return acts_max;
    watch(0);
    if (what == 255) {
      for (std::size_t n = 0; n < watched_groups_max; ++n)
        view_.watch(group(groups_count + n), now_);
      return acts_max / 6;
    }
    for (std::uint8_t speaker = 1; speaker <= far_members_max / far_members_of_host_max; ++speaker)
      flood(speaker, 0, far_members_of_host_max - 2);
    return acts_max / 4;
  }

  /// Takes a datagram as the process does.
  void hear(const in6_addr& from, std::span<const std::byte> datagram) {
    announcement words{};
    if (!read(datagram, words)) return;
    must(words.magic == announcement::magic_value && words.version == announcement::version_value,
         "an announcement of another protocol is taken");
    must(words.slot < process_slots, "a process has no such slot");
    must(words.count > 0 && words.count <= announced_groups_max, "too many groups are taken");
    must(datagram.size() == announcement::bytes_of(words.count), "another size is taken");
    for (std::size_t n = 0; n < words.count; ++n)
      must(is_multicast(words.groups[n]), "an address that is no group's is taken");
    if (words.what == announcement::kind::query) return;
    must(words.what == announcement::kind::members, "an announcement of no kind is taken");
    view_.hear(from, words, now_);
    const member speaker = member_of({.host = from, .slot = words.slot});
    for (unsigned n = 0; n < groups_count; ++n) {
      belief& one = groups_[n];
      if (!one.is_watched || !names(words, group(n))) continue;
      const auto [found, is_new] = one.heard.try_emplace(speaker, now_);
      // A member that was silent for too long is a new one.
      if (!is_new && found->second + membership_time <= now_) one.suspended.erase(speaker);
      found->second = now_;
    }
  }

  static bool names(const announcement& words, const ibv_gid& which) noexcept {
    return std::any_of(words.groups, words.groups + words.count,
                       [&](const ibv_gid& one) { return same(one, which); });
  }

  /// The process looks at the names of this host.
  void compare(script& in) {
    view_.begin_host();
    std::array<std::vector<std::uint16_t>, groups_count> before;
    for (unsigned n = 0; n < groups_count; ++n) before[n] = std::exchange(groups_[n].named, {});
    const unsigned names = in.byte() % 8u;
    for (unsigned n = 0; n < names; ++n) {
      const std::uint8_t what = in.byte();
      const auto slot = static_cast<std::uint16_t>(what / 8);
      belief& one = groups_[what % groups_count];
      view_.add_on_host(group(what % groups_count), slot);
      if (!one.is_watched) continue;
      if (std::find(one.named.begin(), one.named.end(), slot) == one.named.end())
        one.named.push_back(slot);
    }
    view_.end_host();
    for (unsigned n = 0; n < groups_count; ++n)
      for (const std::uint16_t slot : before[n])
        if (const auto& now = groups_[n].named;
            std::find(now.begin(), now.end(), slot) == now.end())
          groups_[n].suspended.erase(slot);
  }

  void suspend(script& in) {
    const std::uint8_t what = in.byte();
    const unsigned n = what % groups_count;
    const auto list = view_.members_of(group(n), now_);
    if (list != nullptr) groups_[n].used = now_;
    if (list == nullptr || list->empty()) return;
    const node_address speaker = (*list)[what / groups_count % list->size()];
    view_.suspend(group(n), speaker, now_);
    groups_[n].suspended[member_of(speaker)] = now_ + suspension_time;
  }

  void check() {
    for (unsigned n = 0; n < groups_count; ++n) check(n);
  }

  void check(unsigned n) {
    const auto list = view_.members_of(group(n), now_);
    must((list != nullptr) == groups_[n].is_watched, "a group has no list, or nobody asked for it");
    if (list == nullptr) return;
    groups_[n].used = now_;
    sorted_.clear();
    for (const node_address& one : *list) sorted_.push_back(member_of(one));
    std::sort(sorted_.begin(), sorted_.end());
    must(std::adjacent_find(sorted_.begin(), sorted_.end()) == sorted_.end(),
         "a member is listed twice");
    check_listed(groups_[n]);
    check_complete(groups_[n]);
  }

  void check_listed(const belief& of) const {
    std::size_t far = 0;
    std::size_t of_host = 0;
    member before = 0;
    for (const member one : sorted_) {
      must(!of.leaves_out(one, now_), "a member is listed that cannot be reached");
      if (one >> 16 == 0) {
        must(std::find(of.named.begin(), of.named.end(), one) != of.named.end(),
             "a process of this host is a member without a name");
        continue;
      }
      of_host = one >> 16 == before >> 16 ? of_host + 1 : 1;
      before = one;
      ++far;
      must(of_host <= far_members_of_host_max, "a host has too many members");
      const auto heard = of.heard.find(one);
      must(heard != of.heard.end() && heard->second + membership_time > now_,
           "a member is listed that said nothing");
    }
    must(far <= far_members_max, "a group has too many members");
  }

  /// While few members spoke since the group is watched, none is missing.
  void check_complete(const belief& of) const {
    const auto has = [&](member speaker) {
      return of.leaves_out(speaker, now_) ||
             std::binary_search(sorted_.begin(), sorted_.end(), speaker);
    };
    for (const std::uint16_t slot : of.named) must(has(slot), "a process of this host is missing");
    if (of.heard.size() > far_members_of_host_max) return;
    for (const auto& [speaker, when] : of.heard)
      must(when + membership_time <= now_ || has(speaker), "a member that spoke is missing");
  }

  group_view view_;
  std::vector<member> sorted_;  ///< the list of one group
  std::array<belief, groups_count> groups_;
  time now_{std::chrono::hours{1}};
};

}  // namespace
}  // namespace softverbs::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  softverbs::fuzz::script in{bytes, size};
  softverbs::fuzz::stage stage;
  stage.run(in);
  return 0;
}
