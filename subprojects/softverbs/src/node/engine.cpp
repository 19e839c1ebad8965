#include "node/node.hpp"

#include "link/errors.hpp"
#include "link/local_listener.hpp"
#include "link/tcp_listener.hpp"
#include "node/port.hpp"
#include "wire/no_cancellation.hpp"

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

int wait_for_events(int epoll, std::span<epoll_event> events,
                    std::chrono::nanoseconds timeout) noexcept {
  const auto room = static_cast<int>(events.size());
  if (timeout.count() < 0) return ::epoll_wait(epoll, events.data(), room, -1);
  const timespec limit{0, timeout.count()};  // All timeouts are below a second.
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
  if (simulated_ != nullptr) {
    slot_ = simulated_->slot();
    return protocol_.start_simulated();
  }
  tcp_ = tcp_settings_of_environment();
  read_port_settings(tcp_);
  tcp_forced_ = environment_says("SOFTVERBS_LINK", "tcp");
  try {
    epoll_.reset(::epoll_create1(EPOLL_CLOEXEC));
    wake_.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    timer_.reset(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
    if (!epoll_ || !wake_ || !timer_) throw_errno("softverbs: the engine's descriptors");
    // Edge-triggered: the counters need not be read.
    if (!watch(epoll_.get(), wake_.get(), EPOLLIN | EPOLLET, {source::wake}) ||
        !watch(epoll_.get(), timer_.get(), EPOLLIN | EPOLLET, {source::timer}))
      throw_errno("softverbs: epoll");
    listeners_.open(epoll_.get(), tcp_);
    slot_ = listeners_.slot();
    if (const subnet* const known = port_subnet()) lid_claim_ = claim_lid(known->own_lid());
    timer_set_ = clock::time_point::max();
    protocol_.start();
    // Signals of the program go to its own threads.
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
    listeners_.close();
    epoll_.reset();
    wake_.reset();
    timer_.reset();
    lid_claim_.reset();
    throw;
  }
}

void node::die() noexcept {
  protocol_.stop();
  stop_links();
}

void node::stop_links() noexcept {
  const std::uint32_t count = live_count_.exchange(0);
  for (std::uint32_t n = 0; n < count; ++n) {
    index_set nobody;
    link& one = *live_[n].load();
    one.stop(directory_, nobody);
    one.set_free();
  }
}

void node::stop() noexcept {
  protocol_.stop();
  if (simulated_ == nullptr) thread_.join();
  stop_links();
  {
    const std::lock_guard lock{
        list_};  // The rest belongs to objects that the program never destroyed.
    for (; kicked_count_.load() != 0; kicked_count_.store(kicked_count_.load() - 1))
      find(std::uint32_t{slot_} << index_bits | kicked_[kicked_first_++ % indices_max])->kicked =
          false;
    kicked_first_ = 0;
    // Reused: closing a device must not need memory.
    while (deadlines_.take_due(clock::time_point::max()) != index_set::none) continue;
    next_deadline_.store(clock::time_point::max().time_since_epoch().count());
  }
  const std::lock_guard lock{directory_};
  listeners_.close();
  epoll_.reset();
  wake_.reset();
  timer_.reset();
  lid_claim_.reset();
}

void node::engine() noexcept {
  ::pthread_setname_np(::pthread_self(), "softverbs");
  explorer::begin_thread();
  protocol_.run();
  explorer::end_thread();
}

void node::wait(std::chrono::nanoseconds limit) noexcept {
  if (limit.count() < 0) set_timer();
  handle_events(explorer::wait(epoll_.get(), limit));
}

void node::yield() noexcept { explorer::yield(); }

clock::time_point node::now() noexcept { return explorer::now(); }

/// Sets the timer to the earliest deadline of queue pairs, services and listeners.
void node::set_timer() noexcept {
  clock::time_point next{clock::duration{next_deadline_.load()}};
  next = std::min(next, next_service());
  {
    const std::lock_guard lock{directory_};
    next = std::min(next, listeners_.deadline());
  }
  if (next == timer_set_) return;
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

void node::handle_events(std::chrono::nanoseconds timeout) noexcept {
  std::array<epoll_event, events_max> events;
  const int count = wait_for_events(epoll_.get(), events, timeout);
  for (int n = 0; n < count; ++n) {
    const epoll_event& event = events[static_cast<std::size_t>(n)];
    const event_tag tag = event_tag::unpacked(event.data.u64);
    switch (tag.from) {
      case source::wake: break;
      case source::timer:
        timer_set_ = clock::time_point::max();  // The timer has expired and must be set again.
        break;
      case source::local_listener:
      case source::tcp_listener: {
        const std::lock_guard lock{directory_};
        listeners_.on_connect(tag.from, clock::now());
        break;
      }
      case source::pending: {
        std::unique_lock lock{directory_};
        if (auto accepted = listeners_.on_hello(tag.index)) accept(std::move(*accepted));
        break;
      }
      case source::link: handle_link(tag, event.events); break;
      case source::service: serve(services_[tag.index], true); break;
    }
  }
  serve_due();
  const std::lock_guard lock{directory_};
  if (listeners_.deadline() != clock::time_point::max()) listeners_.on_time(clock::now());
}

void node::handle_link(event_tag tag, std::uint32_t events) noexcept {
  std::unique_lock lock{directory_};  // After this, no thread is still starting the link.
  link& one = *links_[tag.index];
  lock.unlock();
  if (one.generation() != tag.generation || one.current() == link::state::free) return;
  bool gone = (events & (EPOLLHUP | EPOLLERR | EPOLLRDHUP)) != 0;
  if (one.is_tcp()) {
    if ((events & EPOLLERR) != 0) {
      const auto port = static_cast<std::uint16_t>(tcp_.port + one.peer().slot);
      report_refusal(one.socket(), one.peer().host, port);
    }
    if ((events & EPOLLIN) != 0) one.on_readable();
    if ((events & EPOLLOUT) != 0) one.on_writable();
  } else if ((events & EPOLLIN) != 0) {
    gone = !one.drain_doorbells() || gone;
  }
  if (gone || !one.up()) finish(one);
}

void node::wake_engine() noexcept {
  if (simulated_ != nullptr) return simulated_->on_work();
  const no_cancellation wholly;
  const std::uint64_t once = 1;
  if (wake_) (void)!::write(wake_.get(), &once, sizeof once);
}

void node::want_doorbells(bool wanted) noexcept {
  const std::uint32_t count = live_count_.load(std::memory_order_acquire);
  for (std::uint32_t n = 0; n < count; ++n)
    live_[n].load(std::memory_order_acquire)->want_doorbells(wanted);
}

}  // namespace softverbs
