#include "link/listeners.hpp"

#include "link/local_listener.hpp"
#include "link/tcp_listener.hpp"

#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <string>
#include <system_error>

namespace softverbs {

namespace {

/// How long the listeners pause when the process has no descriptor left for a new connection.
constexpr std::chrono::milliseconds pause_time{100};
constexpr int accepts_at_once_max = 16;  ///< the next event brings the others

std::uint16_t random_slot() noexcept {
#ifdef SOFTVERBS_EXPLORE
  // The second node of a process comes behind the first one in every run.
  static std::atomic<int> next{::getpid()};
  return static_cast<std::uint16_t>(next++ % process_slots);
#else
  std::uint16_t number = 0;
  if (::getrandom(&number, sizeof number, GRND_NONBLOCK) != sizeof number)
    number = static_cast<std::uint16_t>(::getpid());
  return number % process_slots;
#endif
}

}  // namespace

bool watch(int epoll, int fd, std::uint32_t events, event_tag tag) noexcept {
  epoll_event event{};
  event.events = events;
  event.data.u64 = tag.packed();
  return ::epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0 ||
         (errno == EEXIST && ::epoll_ctl(epoll, EPOLL_CTL_MOD, fd, &event) == 0);
}

bool listeners::claim(std::uint16_t slot, const tcp_settings& tcp, listener_name name,
                      bool needs_port) {
  local_ = open_local_listener(slot, name);
  if (!local_) {
    if (errno == EADDRINUSE) return false;
    throw std::system_error{errno, std::generic_category(), "softverbs: the local listener"};
  }
  tcp_ = open_tcp_listener(tcp.listen, static_cast<std::uint16_t>(tcp.port + slot));
  if (tcp_) return true;
  const int error = errno;
  // Without a port, this host's processes still reach each other through the local listeners.
  if (!tcp.listen_set && (error != EADDRINUSE || !needs_port)) return true;
  local_.reset();
  if (error == EADDRINUSE) return false;
  throw std::system_error{error, std::generic_category(), "softverbs: SOFTVERBS_LISTEN"};
}

/// Claims the best slot available. Other users who bind every port and every plain name cannot
/// prevent it.
bool listeners::claim_any(const tcp_settings& tcp) {
  struct attempt {
    listener_name name;
    bool needs_port;
  };
  constexpr attempt attempts[]{
      {listener_name::plain, true}, {listener_name::plain, false}, {listener_name::random, false}};
  const std::uint16_t first = random_slot();
  for (const attempt& one : attempts) {
    for (std::uint16_t tried = 0; tried < process_slots; ++tried) {
      slot_ = static_cast<std::uint16_t>((first + tried) % process_slots);
      if (claim(slot_, tcp, one.name, one.needs_port)) return true;
    }
  }
  return false;
}

void listeners::open(int epoll, const tcp_settings& tcp) {
  epoll_ = epoll;
  if (!claim_any(tcp)) {
    const std::string ports =
        std::to_string(tcp.port) + " to " + std::to_string(tcp.port + process_slots - 1);
    throw std::system_error{
        EAGAIN, std::generic_category(),
        "softverbs: all process slots are taken: " + holders_of_slots() +
            (tcp.listen_set ? "; or the TCP ports " + ports + " are (SOFTVERBS_PORT)" : "")};
  }
  paused_until_ = time::max();
  if (!watch(epoll_, local_.get(), EPOLLIN, {source::local_listener}) ||
      (tcp_ && !watch(epoll_, tcp_.get(), EPOLLIN, {source::tcp_listener})))
    throw std::system_error{errno, std::generic_category(), "softverbs: epoll"};
}

void listeners::close() noexcept {
  local_.reset();
  tcp_.reset();
  for (pending& one : pending_) one.socket.reset();
}

void listeners::on_connect(source listener, time now) noexcept {
  const int fd = listener == source::local_listener ? local_.get() : tcp_.get();
  for (int n = 0; n < accepts_at_once_max; ++n) {
    unique_fd socket{::accept4(fd, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC)};
    if (!socket) {
      if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
        paused_until_ = now + pause_time;
        watch(epoll_, local_.get(), 0, {source::local_listener});
        if (tcp_) watch(epoll_, tcp_.get(), 0, {source::tcp_listener});
      }
      return;
    }
    // If all entries are in use, the oldest pending socket is closed.
    auto entry = std::find_if(pending_.begin(), pending_.end(),
                              [](const pending& one) { return !one.socket; });
    if (entry == pending_.end())
      entry = std::min_element(pending_.begin(), pending_.end(),
                               [](const pending& a, const pending& b) { return a.late < b.late; });
    entry->socket = std::move(socket);
    entry->local = listener == source::local_listener;
    entry->late = now + hello_time_max;
    entry->received = 0;
    if (!entry->local) tune(entry->socket.get());
    const auto index = static_cast<std::uint16_t>(entry - pending_.begin());
    if (!watch(epoll_, entry->socket.get(), EPOLLIN | EPOLLRDHUP, {source::pending, index}))
      entry->socket.reset();
  }
}

std::optional<accepted_peer> listeners::on_hello(unsigned index) noexcept {
  pending& from = pending_[index % pending_.size()];
  if (!from.socket) return std::nullopt;
  return from.local ? receive_local(from) : receive_tcp(from);
}

std::optional<accepted_peer> listeners::receive_local(pending& from) noexcept {
  char first = 0;
  // The event may belong to an earlier socket of this entry.
  if (::recv(from.socket.get(), &first, sizeof first, MSG_PEEK | MSG_DONTWAIT) < 0 &&
      (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
    return std::nullopt;
  accepted_peer accepted;
  accepted.socket = std::move(from.socket);  // A packet arrives whole: one read decides.
  if (!receive_hello(accepted.socket.get(), from.words, accepted.memory)) return std::nullopt;
  accepted.from.slot = from.words.route_slot();
  if (!is_owner_of(accepted.socket.get(), process_slot(accepted.from.slot))) return std::nullopt;
  return accepted;
}

std::optional<accepted_peer> listeners::receive_tcp(pending& from) noexcept {
  auto* bytes = reinterpret_cast<std::byte*>(&from.words);
  const ssize_t got = ::recv(from.socket.get(), bytes + from.received,
                             sizeof from.words - from.received, MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return std::nullopt;
  if (got <= 0) {
    from.socket.reset();
    return std::nullopt;
  }
  from.received += static_cast<std::size_t>(got);
  if (from.received < sizeof from.words) return std::nullopt;
  accepted_peer accepted;
  accepted.socket = std::move(from.socket);
  accepted.from.slot = from.words.route_slot();
  if (!from.words.is_valid() || !address_of_peer(accepted.socket.get(), accepted.from.host))
    return std::nullopt;
  return accepted;
}

void listeners::on_time(time now) noexcept {
  for (pending& one : pending_)
    if (one.socket && one.late <= now) one.socket.reset();
  if (paused_until_ > now) return;
  paused_until_ = time::max();
  watch(epoll_, local_.get(), EPOLLIN, {source::local_listener});
  if (tcp_) watch(epoll_, tcp_.get(), EPOLLIN, {source::tcp_listener});
}

listeners::time listeners::deadline() const noexcept {
  time next = paused_until_;
  for (const pending& one : pending_)
    if (one.socket) next = std::min(next, one.late);
  return next;
}

}  // namespace softverbs
