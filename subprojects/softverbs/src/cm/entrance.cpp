#include "cm/entrance.hpp"

#include "cm/message_check.hpp"
#include "link/ip_address.hpp"
#include "link/socket_names.hpp"
#include "link/tcp_listener.hpp"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace softverbs::cm {

namespace {

/// How long a listening socket pauses when the process has no descriptor left for a new one.
constexpr std::chrono::milliseconds pause_time{100};
constexpr int accepts_at_once_max = 16;  ///< the next event brings further connections

bool is_stream(int socket) noexcept {
  int type = 0;
  int protocol = 0;
  socklen_t length = sizeof type;
  if (::getsockopt(socket, SOL_SOCKET, SO_TYPE, &type, &length) != 0) return false;
  length = sizeof protocol;
  return ::getsockopt(socket, SOL_SOCKET, SO_PROTOCOL, &protocol, &length) == 0 &&
         type == SOCK_STREAM && protocol == IPPROTO_TCP;
}

}  // namespace

// ---- listening sockets

bool acceptor::open(unique_fd socket) noexcept {
  if (!watch(socket.get(), EPOLLIN)) return false;
  close();
  socket_ = std::move(socket);
  return true;
}

void acceptor::close() noexcept {
  if (closed_ != nullptr) *std::exchange(closed_, nullptr) = true;
  if (!socket_) return;
  unwatch(socket_.get());
  socket_.reset();
  set_deadline(time::max());
}

void acceptor::on_event(std::uint32_t, time now) noexcept {
  for (int n = 0; n < accepts_at_once_max && socket_; ++n) {
    unique_fd peer{::accept4(socket_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC)};
    if (peer) {
      bool is_closed = false;
      closed_ = &is_closed;
      entrance_.accept(std::move(peer), by_unix_, now);
      if (is_closed) return;
      closed_ = nullptr;
      continue;
    }
    if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
      watch(socket_.get(), 0);
      set_deadline(now + pause_time);
    }
    return;
  }
}

void acceptor::on_time(time) noexcept {
  if (socket_) watch(socket_.get(), EPOLLIN);
}

// ---- accepted sockets

void pending_request::take(arrival&& from, time now) noexcept {
  from_ = std::move(from);
  received_ = 0;
  late_ = now + request_time_max;
  on_event(EPOLLIN, now);  // Most requests have arrived already, and need no place in the epoll.
  if (is_free() || is_watched_) return;
  is_watched_ = watch(from_.socket.get(), EPOLLIN | EPOLLRDHUP);
  if (!is_watched_) return close();
  set_deadline(late_);
}

void pending_request::close() noexcept {
  if (is_free()) return;
  unwatch_socket();
  from_.socket.reset();
  set_deadline(time::max());
}

void pending_request::unwatch_socket() noexcept {
  if (std::exchange(is_watched_, false)) unwatch(from_.socket.get());
}

void pending_request::on_event(std::uint32_t, time) noexcept {
  if (is_free()) return;
  const outcome read = from_.by_unix ? receive_packet() : receive_stream();
  if (read == outcome::waits) return;
  const bool is_good = read == outcome::whole && is_valid(words_) && words_.is_request();
  if (!is_good) return close();
  // From here on, another accepted socket may take this place.
  unwatch_socket();
  set_deadline(time::max());
  arrival from = std::move(from_);
  const message request = words_;
  entrance_.owner().on_arrival(std::move(from), request);
}

/// A request of this host; with a descriptor, one that the holder of the port passes on.
pending_request::outcome pending_request::receive_packet() noexcept {
  unique_fd passed;
  const int got = receive_with_descriptor(from_.socket.get(), &words_, sizeof words_, passed);
  if (got < 0) return would_block(errno) ? outcome::waits : outcome::bad;
  if (got == 0) return outcome::bad;
  if (!passed) return outcome::whole;
  unwatch_socket();
  from_.socket = std::move(passed);
  from_.passed_on = true;
  return is_stream(from_.socket.get()) && entrance_.knows_peer(from_) ? outcome::whole
                                                                      : outcome::bad;
}

pending_request::outcome pending_request::receive_stream() noexcept {
  auto* const bytes = reinterpret_cast<std::byte*>(&words_);
  // Reads the request and not a byte more: the rest belongs to the process that has the name.
  const ssize_t got =
      ::recv(from_.socket.get(), bytes + received_, sizeof words_ - received_, MSG_DONTWAIT);
  if (got < 0 && would_block(errno)) return outcome::waits;
  if (got <= 0) return outcome::bad;
  received_ += static_cast<std::size_t>(got);
  return received_ == sizeof words_ ? outcome::whole : outcome::waits;
}

entrance::entrance(poller& by, host& owner) : owner_{owner} {
  for (pending_requests* one : {&by_tcp_, &by_names_})
    for (unsigned n = 0; n < requests_pending_max; ++n)
      one->push_back(std::make_unique<pending_request>(by, *this));
}

bool entrance::knows_peer(arrival& from) noexcept {
  const int socket = from.socket.get();
  if (from.by_unix && !from.passed_on) {
    ucred peer{};
    if (owner_of(socket, peer)) return true;
    warn_of_other_user(peer);
    return false;
  }
  from.from.by_tcp = true;
  if (!address_of_peer(socket, from.from.peer_host) || !own_address(socket, from.local))
    return false;
  tune(socket);
  return owner_.admit(from);
}

void entrance::accept(unique_fd socket, bool by_unix, watched::time now) noexcept {
  arrival from;
  from.socket = std::move(socket);
  from.by_unix = by_unix;
  // A socket that is not welcome costs nobody a place.
  if (knows_peer(from)) slot_in(by_unix ? by_names_ : by_tcp_).take(std::move(from), now);
}

/// A free place. If there is none, the host that has most places loses its oldest.
pending_request& entrance::slot_in(pending_requests& among) noexcept {
  pending_request* chosen = nullptr;
  std::ptrdiff_t most = 0;
  for (const auto& one : among) {
    if (one->is_free()) return *one;
    const auto of_host = std::ranges::count_if(
        among, [&](const auto& other) { return same(other->peer_host(), one->peer_host()); });
    if (of_host < most || (of_host == most && one->late() >= chosen->late())) continue;
    chosen = one.get();
    most = of_host;
  }
  chosen->close();
  return *chosen;
}

}  // namespace softverbs::cm
