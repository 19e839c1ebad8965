#include "multicast/membership.hpp"

#include "link/errors.hpp"
#include "link/hints.hpp"
#include "link/ip_address.hpp"
#include "multicast/group.hpp"
#include "multicast/host_names.hpp"
#include "node/fork_mutex.hpp"
#include "node/gid_table.hpp"
#include "node/node.hpp"
#include "wire/no_cancellation.hpp"

#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <new>
#include <system_error>

namespace softverbs {

namespace {

/// Guards every group_membership. A fork acquires the mutex, so that the child finds all
/// descriptors that it must close.
fork_mutex guard;

constexpr int news_at_once_max = 1024;     ///< more than a queue holds
constexpr int datagrams_at_once_max = 64;  ///< the next event brings further datagrams
constexpr unsigned relays_of_period_max = 256;
// More members of a group than links to them would be of no use.
static_assert(far_members_max == member_links_max &&
              far_members_of_host_max == member_links_per_host_max);

/// A datagram that came to one process alone, which passes it on to the others of its host.
struct relay {
  in6_addr host;
  announcement datagram;
  static constexpr std::size_t head_bytes = sizeof(in6_addr);
};
static_assert(sizeof(relay) == relay::head_bytes + sizeof(announcement));

bool add_to(int epoll, int fd) noexcept {
  epoll_event event{};
  event.events = EPOLLIN;
  return ::epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0;
}

}  // namespace

// ---- beginning and end

group_membership& group_membership::of(node& local) {
  if (group_membership* known = local.groups()) return *known;
  const std::lock_guard lock{guard};
  if (local.groups() == nullptr) local.set_groups(*new group_membership{local});
  return *local.groups();
}

void group_membership::acquire(std::atomic<bool>& is_user) {
  if (is_user.load(std::memory_order_acquire)) return;
  const std::lock_guard lock{lifetime_};
  if (is_user.load(std::memory_order_relaxed)) return;
  if (users_ == 0) start();
  ++users_;
  is_user.store(true, std::memory_order_release);
}

void group_membership::release() noexcept {
  const std::lock_guard lock{lifetime_};
  if (--users_ != 0) return;
  local_node_.detach(*this);
  const std::lock_guard all{guard};
  close();
}

void group_membership::start() {
  static_cast<void>(gid_count());  // The table is read before `guard`, which is a leaf.
  try {
    const std::lock_guard all{guard};
    open();
  } catch (...) {
    const std::lock_guard all{guard};
    close();
    throw;
  }
  if (local_node_.attach(*this)) return;
  const std::lock_guard all{guard};
  close();
  throw std::system_error{ENOMEM, std::generic_category(), "softverbs: multicast"};
}

void group_membership::open() {
  epoll_.reset(::epoll_create1(EPOLL_CLOEXEC));
  watcher_ = bind_watcher();
  if (!epoll_ || !watcher_ || !add_to(epoll_.get(), watcher_.get()))
    throw_errno("softverbs: multicast on this host");
  const tcp_settings tcp = tcp_settings_of_environment();
  if (!network_.open(tcp, std::getenv("SOFTVERBS_PEERS")))
    warn_once(hint::no_announcements,
              "softverbs: no multicast to other hosts: UDP port %u cannot be used: %s\n",
              unsigned{tcp.port} + announcement_port, std::strerror(errno));
  else if (network_.is_open() && !add_to(epoll_.get(), network_.descriptor()))
    throw_errno("softverbs: multicast between hosts");
  attachments_.reserve(attached_groups_max);
  names_changed_ = true;
}

void group_membership::close() noexcept {
  attachments_.clear();
  view_.clear();
  network_.close();
  watcher_.reset();
  epoll_.reset();
  announce_at_.store(time::max().time_since_epoch().count());
}

void group_membership::abandon() noexcept {
  for (attachment& one : attachments_) one.name.reset();
  network_.close();
  watcher_.reset();
  epoll_.reset();
}

// ---- members of this process

group_membership::attachment* group_membership::find(const ibv_gid& group) noexcept {
  const auto found = std::find_if(attachments_.begin(), attachments_.end(),
                                  [&](const attachment& one) { return same(one.group, group); });
  return found == attachments_.end() ? nullptr : &*found;
}

int group_membership::attach(const ibv_gid& group, std::uint32_t qpn, std::uint32_t groups_max,
                             std::uint32_t qps_max) {
  const std::lock_guard lock{guard};
  if (attachment* known = find(group)) {
    if (std::find(known->qpns.begin(), known->qpns.end(), qpn) != known->qpns.end()) return 0;
    if (known->qpns.size() >= std::min(qps_max, attached_qps_max)) return ENOMEM;
    known->qpns.push_back(qpn);
    return 0;
  }
  if (qps_max == 0 || attachments_.size() >= std::min(groups_max, attached_groups_max))
    return ENOMEM;
  attachment made{.group = group, .name = {}, .qpns = {qpn}};
  made.name = bind_member(local_node_.slot(), group);
  if (!made.name) return errno;
  attachments_.push_back(std::move(made));
  tell_watchers(watcher_.get(), {});
  announce(clock::now());
  local_node_.wake_service();
  return 0;
}

int group_membership::detach(const ibv_gid& group, std::uint32_t qpn) noexcept {
  const std::lock_guard lock{guard};
  attachment* known = find(group);
  if (known == nullptr || std::erase(known->qpns, qpn) == 0) return EINVAL;
  if (!known->qpns.empty()) return 0;
  if (known != &attachments_.back()) *known = std::move(attachments_.back());
  attachments_.pop_back();
  tell_watchers(watcher_.get(), {});
  return 0;
}

bool group_membership::is_attached(std::uint32_t qpn) noexcept {
  const std::lock_guard lock{guard};
  return std::any_of(attachments_.begin(), attachments_.end(), [qpn](const attachment& one) {
    return std::find(one.qpns.begin(), one.qpns.end(), qpn) != one.qpns.end();
  });
}

group_membership::attached_qps group_membership::attached(const ibv_gid& group) noexcept {
  attached_qps result;
  const std::lock_guard lock{guard};
  if (const attachment* known = find(group)) {
    result.count = static_cast<std::uint32_t>(known->qpns.size());
    std::copy(known->qpns.begin(), known->qpns.end(), result.numbers.begin());
  }
  return result;
}

// ---- members in other processes

void group_membership::watch(const ibv_gid& group) {
  const std::lock_guard lock{guard};
  watch_at(group, clock::now());
}

void group_membership::watch_at(const ibv_gid& group, time now) {
  if (!view_.watch(group, now)) return;
  names_changed_ = true;
  if (!network_.is_open()) return;
  announcement question;
  question.what = announcement::kind::query;
  question.slot = local_node_.slot();
  question.count = 1;
  question.groups[0] = group;
  network_.send(question.bytes());
}

group_membership::destination group_membership::members_of(const ibv_gid& group,
                                                           time now) noexcept {
  const no_cancellation wholly;
  const std::lock_guard lock{guard};
  try {
    watch_at(group, now);
    take_news(now);
    take_announcements(now);
    if (names_changed_) read_names();
    const time ready = network_.is_open() ? view_.watched_since(group) + answer_time : time{};
    return {ready, view_.members_of(group, now)};
  } catch (const std::bad_alloc&) {
    return {};  // A datagram may be lost.
  }
}

void group_membership::suspend(const ibv_gid& group, const node_address& member,
                               time now) noexcept {
  const std::lock_guard lock{guard};
  view_.suspend(group, member, now);
  names_changed_ = true;
}

void group_membership::read_names() {
  names_changed_ = false;
  view_.begin_host();
  member_names names;
  while (const auto one = names.next())
    if (one->slot != local_node_.slot()) view_.add_on_host(one->group, one->slot);
  view_.end_host();
}

/// Takes what processes of this host sent to our watcher's name.
void group_membership::take_news(time now) {
  relay passed;
  for (int n = 0; n < news_at_once_max; ++n) {
    const watcher_news news =
        softverbs::take_news(watcher_.get(), std::as_writable_bytes(std::span{&passed, 1}));
    if (!news.any) return;
    names_changed_ = true;
    announcement from;
    if (!news.trusted || news.bytes <= relay::head_bytes) continue;
    const auto bytes = std::as_bytes(std::span{&passed, 1}).first(news.bytes);
    if (network_.hears(passed.host) && read(bytes.subspan(relay::head_bytes), from))
      take_announcement(passed.host, from, now);
  }
}

/// Takes what processes of other hosts announced.
void group_membership::take_announcements(time now) {
  if (!network_.is_open()) return;
  if (now >= relays_again_) {
    relays_left_ = relays_of_period_max;
    relays_again_ = now + announcement_period;
  }
  relay passed;
  for (int n = 0; n < datagrams_at_once_max; ++n) {
    const auto came = network_.receive(std::as_writable_bytes(std::span{&passed.datagram, 1}));
    if (!came) return;
    const auto bytes = std::as_bytes(std::span{&passed, 1}).first(relay::head_bytes + came->bytes);
    announcement from;
    if (!network_.hears(came->from) || !read(bytes.subspan(relay::head_bytes), from)) continue;
    take_announcement(came->from, from, now);
    if (!came->unicast || relays_left_ == 0) continue;
    --relays_left_;
    passed.host = came->from;
    tell_watchers(watcher_.get(), bytes);
  }
}

bool group_membership::concerns_us(const announcement& from) noexcept {
  const std::span groups{from.groups, from.count};
  const bool asks = from.what == announcement::kind::query;
  return std::any_of(groups.begin(), groups.end(), [&](const ibv_gid& group) {
    return asks ? find(group) != nullptr : view_.watched_since(group) != time{};
  });
}

void group_membership::take_announcement(const in6_addr& host, const announcement& from, time now) {
  ibv_gid gid;
  std::memcpy(&gid, &host, sizeof gid);
  // Processes of this host have names, and nobody may pass for one of them.
  if (!network_.is_open() || !concerns_us(from) || is_multicast(gid)) return;
  if (own_addresses_.has(gid, now)) return;
  if (from.what == announcement::kind::query)
    announce_soon(now);
  else
    view_.hear(host, from, now);
}

// ---- announcements

void group_membership::run(time now) noexcept {
  const std::lock_guard lock{guard};
  try {
    take_news(now);
    take_announcements(now);
  } catch (const std::bad_alloc&) {
    names_changed_ = true;  // Lost announcements come again.
  }
  if (deadline() <= now) announce(now);
}

void group_membership::announce(time now) noexcept {
  announced_at_ = now;
  const bool again = network_.is_open() && !attachments_.empty();
  const time next = again ? now + announcement_period : time::max();
  announce_at_.store(next.time_since_epoch().count());
  if (!again) return;
  announcement about;
  about.what = announcement::kind::members;
  about.slot = local_node_.slot();
  for (const attachment& one : attachments_) {
    about.groups[about.count++] = one.group;
    if (about.count < announced_groups_max && &one != &attachments_.back()) continue;
    network_.send(about.bytes());
    about.count = 0;
  }
}

void group_membership::announce_soon(time now) noexcept {
  const time next = std::max(now, announced_at_ + announcement_gap);
  if (next < deadline()) announce_at_.store(next.time_since_epoch().count());
  local_node_.wake_service();
}

}  // namespace softverbs
