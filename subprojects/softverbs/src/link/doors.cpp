#include "link/doors.hpp"

#include "link/local_door.hpp"
#include "link/tcp_door.hpp"

#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <system_error>

namespace softverbs {

namespace {

/// How long a door stays shut when there was no descriptor for a visitor.
constexpr std::chrono::milliseconds pause_time{100};
constexpr int visitors_at_once_max = 16;  ///< the others come with the next event

std::uint16_t random_slot() noexcept {
  std::uint16_t number = 0;
  if (::getrandom(&number, sizeof number, GRND_NONBLOCK) != sizeof number)
    number = static_cast<std::uint16_t>(::getpid());
  return number % process_slots;
}

}  // namespace

bool watch(int epoll, int fd, std::uint32_t events, event_tag tag) noexcept {
  epoll_event event{};
  event.events = events;
  event.data.u64 = tag.packed();
  return ::epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0 ||
         (errno == EEXIST && ::epoll_ctl(epoll, EPOLL_CTL_MOD, fd, &event) == 0);
}

bool doors::claim(std::uint16_t slot, const tcp_settings& tcp, door_name name, bool needs_port) {
  local_ = open_local_door(slot, name);
  if (!local_) {
    if (errno == EADDRINUSE) return false;
    throw std::system_error{errno, std::generic_category(), "softverbs: the local door"};
  }
  tcp_ = open_tcp_door(tcp.listen, static_cast<std::uint16_t>(tcp.port + slot));
  if (tcp_) return true;
  const int error = errno;
  // Without a port this host's processes still reach each other through the local doors.
  if (!tcp.listen_set && (error != EADDRINUSE || !needs_port)) return true;
  local_.reset();
  if (error == EADDRINUSE) return false;
  throw std::system_error{error, std::generic_category(), "softverbs: SOFTVERBS_LISTEN"};
}

/// The best slot that can be had: other users cannot keep us out, though they take every port and
/// every plain name.
bool doors::claim_any(const tcp_settings& tcp) {
  struct attempt {
    door_name name;
    bool needs_port;
  };
  constexpr attempt attempts[]{
      {door_name::plain, true}, {door_name::plain, false}, {door_name::random, false}};
  const std::uint16_t first = random_slot();
  for (const attempt& one : attempts) {
    for (std::uint16_t tried = 0; tried < process_slots; ++tried) {
      slot_ = static_cast<std::uint16_t>((first + tried) % process_slots);
      if (claim(slot_, tcp, one.name, one.needs_port)) return true;
    }
  }
  return false;
}

void doors::open(int epoll, const tcp_settings& tcp) {
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
  if (!watch(epoll_, local_.get(), EPOLLIN, {source::local_door}) ||
      (tcp_ && !watch(epoll_, tcp_.get(), EPOLLIN, {source::tcp_door})))
    throw std::system_error{errno, std::generic_category(), "softverbs: epoll"};
}

void doors::close() noexcept {
  local_.reset();
  tcp_.reset();
  for (pending& one : pending_) one.socket.reset();
}

void doors::on_connect(source door, time now) noexcept {
  const int fd = door == source::local_door ? local_.get() : tcp_.get();
  for (int n = 0; n < visitors_at_once_max; ++n) {
    unique_fd socket{::accept4(fd, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC)};
    if (!socket) {
      if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
        paused_until_ = now + pause_time;
        watch(epoll_, local_.get(), 0, {source::local_door});
        if (tcp_) watch(epoll_, tcp_.get(), 0, {source::tcp_door});
      }
      return;
    }
    // The place of the one who has been silent longest, when all are taken.
    auto place = std::find_if(pending_.begin(), pending_.end(),
                              [](const pending& one) { return !one.socket; });
    if (place == pending_.end())
      place = std::min_element(pending_.begin(), pending_.end(),
                               [](const pending& a, const pending& b) { return a.late < b.late; });
    place->socket = std::move(socket);
    place->local = door == source::local_door;
    place->late = now + hello_time_max;
    place->received = 0;
    if (!place->local) tune(place->socket.get());
    const auto index = static_cast<std::uint16_t>(place - pending_.begin());
    if (!watch(epoll_, place->socket.get(), EPOLLIN | EPOLLRDHUP, {source::visitor, index}))
      place->socket.reset();
  }
}

std::optional<visitor> doors::on_visitor(unsigned index) noexcept {
  pending& from = pending_[index % pending_.size()];
  if (!from.socket) return std::nullopt;
  return from.local ? hear_local(from) : hear_tcp(from);
}

std::optional<visitor> doors::hear_local(pending& from) noexcept {
  char first = 0;
  // An event of the visitor who had this place before.
  if (::recv(from.socket.get(), &first, sizeof first, MSG_PEEK | MSG_DONTWAIT) < 0 &&
      (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
    return std::nullopt;
  visitor guest;
  guest.socket = std::move(from.socket);  // A packet comes whole: this is the one chance.
  if (!receive_hello(guest.socket.get(), from.words, guest.memory)) return std::nullopt;
  guest.from.slot = static_cast<std::uint16_t>(from.words.slot);
  if (!is_owner_of(guest.socket.get(), guest.from.slot)) return std::nullopt;
  return guest;
}

std::optional<visitor> doors::hear_tcp(pending& from) noexcept {
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
  visitor guest;
  guest.socket = std::move(from.socket);
  guest.from.slot = static_cast<std::uint16_t>(from.words.slot);
  if (!from.words.sound() || !address_of_peer(guest.socket.get(), guest.from.host))
    return std::nullopt;
  return guest;
}

void doors::on_time(time now) noexcept {
  for (pending& one : pending_)
    if (one.socket && one.late <= now) one.socket.reset();
  if (paused_until_ > now) return;
  paused_until_ = time::max();
  watch(epoll_, local_.get(), EPOLLIN, {source::local_door});
  if (tcp_) watch(epoll_, tcp_.get(), EPOLLIN, {source::tcp_door});
}

doors::time doors::deadline() const noexcept {
  time next = paused_until_;
  for (const pending& one : pending_)
    if (one.socket) next = std::min(next, one.late);
  return next;
}

}  // namespace softverbs
