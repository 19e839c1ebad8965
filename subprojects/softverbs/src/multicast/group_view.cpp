#include "multicast/group_view.hpp"

#include "link/ip_address.hpp"

#include <algorithm>
#include <cstring>

namespace softverbs {

namespace {

bool is_far(const node_address& address) noexcept { return !same(address.host, this_host); }

}  // namespace

group_view::watched* group_view::find(const ibv_gid& group) noexcept {
  const auto found = std::find_if(groups_.begin(), groups_.end(),
                                  [&](const watched& one) { return same(one.group, group); });
  return found == groups_.end() ? nullptr : &*found;
}

bool group_view::watch(const ibv_gid& group, time now) {
  if (watched* known = find(group)) {
    known->used = now;
    return false;
  }
  while (groups_.size() >= watched_groups_max) {
    const auto oldest =
        std::min_element(groups_.begin(), groups_.end(),
                         [](const watched& a, const watched& b) { return a.used < b.used; });
    if (oldest->used + group_use_time > now) break;
    groups_.erase(oldest);
  }
  groups_.push_back({.group = group, .since = now, .used = now, .all = {}, .list = {}});
  return true;
}

group_view::time group_view::watched_since(const ibv_gid& group) const noexcept {
  for (const watched& one : groups_)
    if (same(one.group, group)) return one.since;
  return {};
}

void group_view::begin_host() noexcept {
  for (watched& one : groups_)
    for (member& each : one.all) each.is_named = is_far(each.address);
}

void group_view::add_on_host(const ibv_gid& group, std::uint16_t slot) {
  watched* const in = find(group);
  if (in == nullptr) return;
  const node_address address{.host = {}, .slot = slot};
  for (member& each : in->all)
    if (each.address == address) {
      each.is_named = true;
      return;
    }
  in->all.push_back({.address = address, .expires = time::max()});
  in->list.reset();
}

void group_view::end_host() noexcept {
  for (watched& one : groups_)
    if (std::erase_if(one.all, [](const member& each) { return !each.is_named; }) != 0)
      one.list.reset();
}

void group_view::hear(const in6_addr& host, const announcement& from, time now) {
  for (std::size_t n = 0; n < from.count; ++n)
    if (watched* in = find(from.groups[n])) keep_far(*in, {.host = host, .slot = from.slot}, now);
}

void group_view::keep_far(watched& in, const node_address& from, time now) {
  std::erase_if(in.all, [now](const member& each) { return each.expires <= now; });
  std::size_t far = 0;
  std::size_t of_host = 0;
  for (member& each : in.all) {
    if (each.address == from) {
      each.expires = now + membership_time;
      return;
    }
    far += is_far(each.address) ? 1 : 0;
    of_host += same(each.address.host, from.host) ? 1 : 0;
  }
  if (far >= far_members_max || of_host >= far_members_of_host_max) return;
  in.all.push_back({.address = from, .expires = now + membership_time});
  in.list.reset();
}

void group_view::suspend(const ibv_gid& group, const node_address& member_at, time now) noexcept {
  watched* const in = find(group);
  if (in == nullptr) return;
  for (member& each : in->all)
    if (each.address == member_at) {
      each.suspended_until = now + suspension_time;
      in->list.reset();
    }
}

void group_view::make_list(watched& of, time now) {
  std::erase_if(of.all, [now](const member& each) { return each.expires <= now; });
  auto list = std::make_shared<members>();
  of.list_until = time::max();
  for (const member& each : of.all) {
    const bool suspended = each.suspended_until > now;
    if (!suspended) list->push_back(each.address);
    of.list_until = std::min(of.list_until, suspended ? each.suspended_until : each.expires);
  }
  of.list = std::move(list);
}

std::shared_ptr<const group_view::members> group_view::members_of(const ibv_gid& group, time now) {
  watched* const of = find(group);
  if (of == nullptr) return nullptr;
  of->used = now;
  if (of->list == nullptr || of->list_until <= now) make_list(*of, now);
  return of->list;
}

}  // namespace softverbs
