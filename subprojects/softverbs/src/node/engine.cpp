#include "node/node.hpp"

#include "link/tcp_door.hpp"

#include <pthread.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <span>
#include <system_error>

namespace softverbs {

namespace {

constexpr int events_max = 64;
/// Turns of work between two looks at the sockets, while there is always work.
constexpr unsigned turns_per_look = 64;
/// How long the engine still looks for more after its last work: a sleep and a wake take as long,
/// and in a stream of frames the next one comes sooner.
constexpr std::chrono::microseconds linger_time{50};
constexpr std::chrono::milliseconds crowded_time{100};
constexpr std::chrono::nanoseconds for_ever{-1};

[[noreturn]] void refuse(const char* what) {
  throw std::system_error{errno, std::generic_category(), what};
}

int wait_for_events(int epoll, std::span<epoll_event> events,
                    std::chrono::nanoseconds timeout) noexcept {
  const auto room = static_cast<int>(events.size());
  if (timeout == for_ever) return ::epoll_wait(epoll, events.data(), room, -1);
  const timespec limit{0, timeout.count()};  // All of them are below a second.
  const int count = ::epoll_pwait2(epoll, events.data(), room, &limit, nullptr);
  if (count >= 0 || errno != ENOSYS) return count;
  // Linux before 5.11 waits for whole milliseconds.
  const auto whole = std::chrono::ceil<std::chrono::milliseconds>(timeout).count();
  return ::epoll_wait(epoll, events.data(), room, static_cast<int>(whole));
}

bool environment_says(const char* name, const char* value) noexcept {
  const char* said = std::getenv(name);
  return said != nullptr && std::strcmp(said, value) == 0;
}

}  // namespace

void node::start() {
  tcp_ = tcp_settings_of_environment();
  tcp_forced_ = environment_says("SOFTVERBS_LINK", "tcp");
  try {
    epoll_.reset(::epoll_create1(EPOLL_CLOEXEC));
    wake_.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    timer_.reset(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
    if (!epoll_ || !wake_ || !timer_) refuse("softverbs: the engine's descriptors");
    // Edges: neither has to be read.
    if (!watch(epoll_.get(), wake_.get(), EPOLLIN | EPOLLET, {source::wake}) ||
        !watch(epoll_.get(), timer_.get(), EPOLLIN | EPOLLET, {source::timer}))
      refuse("softverbs: epoll");
    doors_.open(epoll_.get(), tcp_);
    slot_ = doors_.slot();
    timer_set_ = clock::time_point::max();
    stopping_.store(false);
    polled_.store(false);
    // The program's signals are its own threads'.
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    // A fault whose signal is blocked ends the process, guard or not.
    for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP}) sigdelset(&all, fault);
    ::pthread_sigmask(SIG_SETMASK, &all, &before);
    try {
      thread_ = std::thread{[this] { engine(); }};
    } catch (...) {
      ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
      throw;
    }
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  } catch (...) {
    doors_.close();
    epoll_.reset();
    wake_.reset();
    timer_.reset();
    throw;
  }
}

void node::stop() noexcept {
  stopping_.store(true);
  wake_engine();
  thread_.join();
  const std::uint32_t count = live_count_.exchange(0);
  for (std::uint32_t n = 0; n < count; ++n) {
    index_set nobody;
    link& one = *live_[n].load();
    one.stop(directory_, nobody);
    one.set_free();
  }
  {
    const std::lock_guard lock{list_};  // What is left is of objects that nobody destroyed.
    for (; kicked_count_.load() != 0; kicked_count_.fetch_sub(1))
      find(std::uint32_t{slot_} << index_bits | kicked_[kicked_first_++ % indices_max])->kicked =
          false;
    kicked_first_ = 0;
    deadlines_ = deadline_heap{};
    next_deadline_.store(clock::time_point::max().time_since_epoch().count());
  }
  const std::lock_guard lock{directory_};
  doors_.close();
  epoll_.reset();
  wake_.reset();
  timer_.reset();
}

void node::engine() noexcept {
  ::pthread_setname_np(::pthread_self(), "softverbs");
  clock::time_point linger_until{};
  clock::time_point lingers_from{};
  for (unsigned turn = 0; !stopping_.load(); ++turn) {
    if (polled_.load()) {
      watch_pollers();
      continue;
    }
    watch_period_ = watch_period_first;
    if (work(true)) {
      linger_until = {};
      if (turn % turns_per_look == 0) handle_events({});
    } else if (const clock::time_point now = clock::now(); linger_until == clock::time_point{}) {
      linger_until = now < lingers_from ? now : now + linger_time;
    } else if (now >= linger_until) {
      sleep();
    } else {
      ::sched_yield();
      // Somebody else wants this processor, and gets whole slices of it at each yield: sleepers are
      // woken sooner.
      if (const auto back = clock::now(); back - now > linger_time)
        lingers_from = back + crowded_time;
    }
  }
}

/// Pollers do the work: sockets and doors are ours still, and to see that the polls go on.
void node::watch_pollers() noexcept {
  watching_.store(true);
  if (const clock::time_point now = clock::now(); now >= watch_until_) {
    if (!polls_seen_.exchange(false)) {
      watching_.store(false);
      give_back();
      return;
    }
    watch_until_ = now + watch_period_;
    watch_period_ = std::min<std::chrono::nanoseconds>(2 * watch_period_, watch_period_max);
  }
  handle_events(watch_period_);
  watching_.store(false);
}

void node::sleep() noexcept {
  {
    const std::lock_guard lock{duty_};
    if (polled_.load()) return;
    want_doorbells(true);
    asleep_.store(true);
  }
  // What came before the doorbells were on, or before we said that we sleep.
  if (!work(true) && !stopping_.load()) {
    clock::time_point next{clock::duration{next_deadline_.load()}};
    {
      const std::lock_guard lock{directory_};
      next = std::min(next, doors_.deadline());
    }
    if (next != timer_set_) {
      using namespace std::chrono;
      itimerspec when{};
      if (next != clock::time_point::max()) {
        const auto since = next.time_since_epoch();
        when.it_value.tv_sec = duration_cast<seconds>(since).count();
        when.it_value.tv_nsec = (since % seconds{1}).count();
        if (when.it_value.tv_sec == 0 && when.it_value.tv_nsec == 0) when.it_value.tv_nsec = 1;
      }
      ::timerfd_settime(timer_.get(), TFD_TIMER_ABSTIME, &when, nullptr);
      timer_set_ = next;
    }
    handle_events(for_ever);
  }
  asleep_.store(false);
}

void node::handle_events(std::chrono::nanoseconds timeout) noexcept {
  std::array<epoll_event, events_max> events;
  const int count = wait_for_events(epoll_.get(), events, timeout);
  for (int n = 0; n < count; ++n) {
    const epoll_event& event = events[static_cast<std::size_t>(n)];
    const event_tag tag = event_tag::unpacked(event.data.u64);
    switch (tag.from) {
      case source::wake: break;
      case source::timer:
        timer_set_ = clock::time_point::max();  // It has expired: it must be set again.
        break;
      case source::local_door:
      case source::tcp_door: {
        const std::lock_guard lock{directory_};
        doors_.on_knock(tag.from, clock::now());
        break;
      }
      case source::visitor: {
        std::unique_lock lock{directory_};
        if (auto guest = doors_.on_visitor(tag.index)) admit(std::move(*guest));
        break;
      }
      case source::link: handle_link(tag, event.events); break;
    }
  }
  const std::lock_guard lock{directory_};
  if (doors_.deadline() != clock::time_point::max()) doors_.on_time(clock::now());
}

void node::handle_link(event_tag tag, std::uint32_t events) noexcept {
  std::unique_lock lock{directory_};  // Whoever is starting it now is through then.
  link& one = *links_[tag.index];
  lock.unlock();
  if (one.generation() != tag.generation || one.current() == link::state::free) return;
  bool gone = (events & (EPOLLHUP | EPOLLERR | EPOLLRDHUP)) != 0;
  if (one.is_tcp()) {
    if ((events & EPOLLERR) != 0) {
      const auto port = static_cast<std::uint16_t>(tcp_.port + one.peer().slot);
      hear_refusal(one.socket(), one.peer().host, port);
    }
    if ((events & EPOLLIN) != 0) one.on_readable();
    if ((events & EPOLLOUT) != 0) one.on_writable();
  } else if ((events & EPOLLIN) != 0) {
    gone = !one.hear_doorbells() || gone;
  }
  if (gone || !one.up()) finish(one);
}

void node::wake_engine() noexcept {
  const std::uint64_t once = 1;
  if (wake_) (void)!::write(wake_.get(), &once, sizeof once);
}

// ---- who does the work

void node::want_doorbells(bool wanted) noexcept {
  const std::uint32_t count = live_count_.load(std::memory_order_acquire);
  for (std::uint32_t n = 0; n < count; ++n)
    live_[n].load(std::memory_order_acquire)->want_doorbells(wanted);
}

void node::take_over() noexcept {
  const std::lock_guard lock{duty_};
  if (polled_.load()) return;
  polls_seen_.store(true);
  polled_.store(true);
  asleep_.store(false);
  want_doorbells(false);
  // It may sleep without an end; unless it is watching, it has to learn of us.
  if (!watching_.load()) wake_engine();
}

void node::give_back() noexcept {
  const std::lock_guard lock{duty_};
  if (!polled_.load()) return;
  polled_.store(false);
  want_doorbells(true);
  asleep_.store(true);  // Kicks wake the engine from now on.
}

}  // namespace softverbs
