#include "cm/poller.hpp"

#include "link/listeners.hpp"

#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <array>
#include <new>

namespace softverbs::cm {

namespace {

constexpr int events_max = 64;  ///< in one run; the epoll stays readable while there are more

}  // namespace

watched::watched(poller& by) noexcept : poller_{by}, index_{by.take(*this)} {}

watched::~watched() {
  if (is_registered()) poller_.free(index_);
}

bool watched::watch(int fd, std::uint32_t events) noexcept {
  return is_registered() &&
         softverbs::watch(poller_.epoll_.get(), fd, events,
                          {source::service, index_, poller_.slots_[index_].generation});
}

void watched::unwatch(int fd) noexcept {
  ::epoll_ctl(poller_.epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
}

void watched::set_deadline(time when) noexcept {
  if (!is_registered()) return;
  const time before = poller_.deadline();
  poller_.deadlines_.forget(index_);
  if (when != time::max()) poller_.deadlines_.set(index_, when);
  if (!poller_.is_running_ && poller_.deadline() < before)
    (void)::eventfd_write(poller_.wake_.get(), 1);
}

bool poller::open() noexcept {
  epoll_.reset(::epoll_create1(EPOLL_CLOEXEC));
  wake_.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  return epoll_ && wake_ && softverbs::watch(epoll_.get(), wake_.get(), EPOLLIN, {source::wake});
}

std::uint16_t poller::take(watched& target) noexcept {
  if (free_.empty()) {
    if (slots_.size() == indices_max) return watched::none;
    try {
      slots_.emplace_back();
      free_.reserve(slots_.capacity());
    } catch (const std::bad_alloc&) {
      return watched::none;  // A place more than free_ can hold stays unused.
    }
    free_.push_back(static_cast<std::uint16_t>(slots_.size() - 1));
  }
  const std::uint16_t index = free_.back();
  free_.pop_back();
  slots_[index].target = &target;
  return index;
}

void poller::free(std::uint16_t index) noexcept {
  deadlines_.forget(index);
  slots_[index].target = nullptr;
  ++slots_[index].generation;
  free_.push_back(index);
}

void poller::run(time now) noexcept {
  std::array<epoll_event, events_max> events;
  const int count = ::epoll_wait(epoll_.get(), events.data(), events_max, 0);
  is_running_ = true;
  for (int n = 0; n < count; ++n) {
    const epoll_event& event = events[static_cast<std::size_t>(n)];
    const event_tag tag = event_tag::unpacked(event.data.u64);
    eventfd_t wakes = 0;
    if (tag.from == source::wake) {
      (void)::eventfd_read(wake_.get(), &wakes);
    } else if (const slot& at = slots_[tag.index];
               at.target != nullptr && at.generation == tag.generation) {
      at.target->on_event(event.events, now);
    }
  }
  for (std::uint32_t index = 0; (index = deadlines_.take_due(now)) != index_set::none;)
    slots_[index].target->on_time(now);
  is_running_ = false;
}

void poller::abandon() noexcept {
  for (const slot& one : slots_)
    if (one.target != nullptr) one.target->close_copies();
  epoll_.reset();
  wake_.reset();
}

}  // namespace softverbs::cm
