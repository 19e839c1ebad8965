#include "epoll_reactor.hpp"

#include "base/descriptors.hpp"
#include "base/failures.hpp"
#include "base/fork.hpp"

#include <cordma/detail/base/assert.hpp>

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>

#include <algorithm>
#include <array>
#include <cerrno>

namespace cordma {
namespace {

constexpr std::uint64_t of_wake = UINT64_MAX;
constexpr std::uint64_t of_timer = UINT64_MAX - 1;
/// A busy loop polls more often than a system call is worth.
constexpr std::chrono::microseconds kernel_poll_period{20};
/// Time until a watch that the kernel had no memory for is told again.
constexpr int retry_ms = 10;

unique_fd checked(int fd, const char* call) {
  if (fd < 0) detail::throw_errno(errno, call, way_out_of_descriptors(errno));
  return unique_fd{fd};
}

void add(int epoll, int fd, std::uint64_t name) {
  epoll_event event{.events = EPOLLIN | EPOLLET, .data = {.u64 = name}};
  if (::epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) != 0) detail::throw_errno(errno, "epoll_ctl");
}

std::uint32_t events_of(const fd_watch& w) noexcept { return std::uint32_t(w.events()); }

time_point now() noexcept { return time_source::monotonic().now(); }

}  // namespace

epoll_reactor::epoll_reactor()
    : epoll_{checked(::epoll_create1(EPOLL_CLOEXEC), "epoll_create1")},
      wake_{checked(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC), "eventfd")},
      timer_{
          checked(::timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC), "timerfd_create")},
      process_{detail::process_epoch()} {
  // The reactor reads neither descriptor: each write, and each expiration, is an edge of its own.
  add(epoll_.get(), wake_.get(), of_wake);
  add(epoll_.get(), timer_.get(), of_timer);
}

std::unique_ptr<reactor> reactor::on_epoll() { return std::make_unique<epoll_reactor>(); }

epoll_reactor::~epoll_reactor() {
  for (slot& s : slots_)
    if (s.watch != nullptr) s.watch->abandoned();
}

void epoll_reactor::watch(fd_watch& w) {
  if (unused_ == nobody) {
    slots_.emplace_back();
    release(std::uint32_t(slots_.size() - 1));
  }
  // No later call allocates for this watch. A number that is no descriptor has no entry.
  const auto fd = std::size_t(w.fd());
  if (w.fd() >= 0 && fd >= entries_.size() && ::fcntl(w.fd(), F_GETFD) != -1)
    entries_.resize(fd + 1);
  firing_.reserve(slots_.size());
  new_.push_back(unused_);
  w.key = unused_;
  slot& s = slots_[w.key];
  unused_ = s.next;
  s = {.watch = &w, .now = state::new_watch};
}

void epoll_reactor::unwatch(fd_watch& w) noexcept {
  slot& s = slots_[w.key];
  if (s.now == state::new_watch) {
    s.watch = nullptr;  // tell_new() releases it.
    return;
  }
  const bool is_linked = s.now == state::watching;
  if (is_linked) unlink(w.key);
  release(w.key);
  if (is_linked && entries_[std::size_t(w.fd())].first == nobody) forget(w.fd());
}

void epoll_reactor::release(std::uint32_t index) noexcept {
  slots_[index] = {.next = std::exchange(unused_, index)};
}

void epoll_reactor::unlink(std::uint32_t index) noexcept {
  std::uint32_t* at = &entries_[std::size_t(slots_[index].watch->fd())].first;
  while (*at != index) at = &slots_[*at].next;
  *at = slots_[index].next;
}

/// Removes the entry of a descriptor. A file that is still open elsewhere would keep it.
void epoll_reactor::forget(int fd) noexcept {
  // The child of a fork shares the entries with its parent.
  if (process_ != detail::process_epoch()) return;
  entries_[std::size_t(fd)].is_known = false;
  enters_.add();
  static_cast<void>(::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr));
}

void epoll_reactor::tell_new() noexcept {
  const auto is_done = [this](std::uint32_t index) {
    slot& s = slots_[index];
    if (s.watch == nullptr) {
      release(index);
      return true;
    }
    const int failed = tell(index);
    if (failed == ENOMEM || failed == ENOSPC) return false;
    if (failed != 0) {  // EBADF, or EPERM: a regular file.
      s.now = state::firing;
      s.is_due = true;
      firing_.push_back(index);
    }
    return true;
  };
  std::erase_if(new_, is_done);
}

/// Gives a new watch to the kernel. Returns an errno.
int epoll_reactor::tell(std::uint32_t index) noexcept {
  slot& s = slots_[index];
  const int fd = s.watch->fd();
  if (fd < 0 || std::size_t(fd) >= entries_.size()) return EBADF;
  entry& here = entries_[std::size_t(fd)];
  epoll_event event{.events = events_of(*s.watch), .data = {.u64 = std::uint64_t(fd)}};
  for (std::uint32_t n = here.first; n != nobody; n = slots_[n].next)
    event.events |= events_of(*slots_[n].watch);
  const bool is_only = here.first == nobody;
  event.events |= is_only && s.watch->kind() == watch_kind::once ? EPOLLONESHOT : EPOLLET;
  const auto control = [&](int operation) {
    enters_.add();
    return ::epoll_ctl(epoll_.get(), operation, fd, &event) == 0 ? 0 : errno;
  };
  int failed = control(here.is_known ? EPOLL_CTL_MOD : EPOLL_CTL_ADD);
  // The descriptor was closed, or is another's number now, since its entry was made.
  if (failed == ENOENT) failed = control(EPOLL_CTL_ADD);
  if (failed == EEXIST) failed = control(EPOLL_CTL_MOD);
  if (failed != 0) return failed;
  s.next = std::exchange(here.first, index);
  s.now = state::watching;
  here.is_known = true;
  here.is_one_shot = (event.events & EPOLLONESHOT) != 0;
  return 0;
}

void epoll_reactor::tell_alarm() noexcept {
  if (alarm_at_ >= timer_at_) return;  // An early alarm is harmless.
  // Zero would stop the timer.
  const auto at = std::max(alarm_at_.time_since_epoch(), duration{1});
  const auto whole = std::chrono::duration_cast<std::chrono::seconds>(at);
  itimerspec when{};
  when.it_value.tv_sec = whole.count();
  when.it_value.tv_nsec = std::chrono::nanoseconds{at - whole}.count();
  enters_.add();
  const int outcome = ::timerfd_settime(timer_.get(), TFD_TIMER_ABSTIME, &when, nullptr);
  CORDMA_ASSERT(outcome == 0, "timerfd_settime failed");
  timer_at_ = alarm_at_;
}

void epoll_reactor::poll() noexcept {
  tell_new();
  const time_point at = now();
  if (alarm_at_ <= at) ring_alarm();
  if (at - polled_at_ >= kernel_poll_period) {
    polled_at_ = at;
    collect(0);
  }
  fire();
}

void epoll_reactor::wait() noexcept {
  tell_new();
  if (firing_.empty()) {
    tell_alarm();
    collect(new_.empty() ? -1 : retry_ms);
  }
  fire();
}

int epoll_reactor::arm() noexcept {
  tell_new();
  tell_alarm();
  if (!firing_.empty() || !new_.empty()) wake();
  return epoll_.get();
}

void epoll_reactor::ring_alarm() noexcept {
  alarm_at_ = time_point::max();
  alarm_fired_ = true;
}

void epoll_reactor::collect(int timeout_ms) noexcept {
  std::array<epoll_event, 64> events;  // The next call takes further events.
  enters_.add();
  const int count = ::epoll_wait(epoll_.get(), events.data(), int(events.size()), timeout_ms);
  CORDMA_ASSERT(count >= 0 || errno == EINTR, "epoll_wait failed");
  for (int n = 0; n < count; ++n) {
    const epoll_event& event = events[std::size_t(n)];
    if (event.data.u64 == of_timer) {
      timer_at_ = time_point::max();
      ring_alarm();
    } else if (event.data.u64 != of_wake) {
      collect(int(event.data.u64), event.events);
    }
  }
}

/// Notes the watches of a descriptor that are ready.
void epoll_reactor::collect(int fd, std::uint32_t events) noexcept {
  entry& here = entries_[std::size_t(fd)];
  for (std::uint32_t next, n = here.first; n != nobody; n = next) {
    slot& s = slots_[n];
    next = s.next;
    if ((events & (events_of(*s.watch) | EPOLLERR | EPOLLHUP)) == 0) continue;
    if (s.watch->kind() == watch_kind::once) {
      unlink(n);
      s.now = state::firing;
    }
    s.is_due = true;
    firing_.push_back(n);
  }
  if (here.first == nobody && !here.is_one_shot) forget(fd);
}

void epoll_reactor::fire() noexcept {
  // A call may destroy any watch, which is not due then, and start others.
  for (std::size_t n = 0; n < firing_.size(); ++n) {
    const std::uint32_t index = firing_[n];
    if (!std::exchange(slots_[index].is_due, false)) continue;
    fd_watch& w = *slots_[index].watch;
    if (slots_[index].now == state::firing) {
      release(index);
      if (w.kind() == watch_kind::edges) w.abandoned();
    }
    w.fired();
  }
  firing_.clear();
}

void epoll_reactor::wake() noexcept { static_cast<void>(::eventfd_write(wake_.get(), 1)); }

}  // namespace cordma
