#include "cm/socket_conversation.hpp"

#include "cm/message_check.hpp"
#include "cm/names.hpp"
#include "link/ip_address.hpp"
#include "link/listeners.hpp"
#include "link/tcp_listener.hpp"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

namespace softverbs::cm {

namespace {

constexpr int messages_at_once_max = 4;  ///< read in one event; the next event brings the others

bool is_lack(int error) noexcept {
  return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM;
}

/// True if the peer may have closed a socket whose request it has not read, for want of a place. By
/// TCP, the port's holder may have died, too: another one takes its place.
bool is_of_entrance(int error, bool by_tcp) noexcept {
  return error == ECONNRESET || error == EPIPE || (by_tcp && error == ECONNREFUSED);
}

}  // namespace

bool conversation_count::has_room_for(const in6_addr& host) const noexcept {
  const auto of_host =
      std::ranges::count_if(of_remote_hosts_, [&](const in6_addr& one) { return same(one, host); });
  return !is_full() && of_host < conversations_per_host_max;
}

void conversation_count::add(const in6_addr& begun_by) noexcept {
  ++all_;
  if (!same(begun_by, this_host)) of_remote_hosts_.push_back(begun_by);
}

void conversation_count::remove(const in6_addr& begun_by) noexcept {
  --all_;
  const auto one = std::ranges::find_if(of_remote_hosts_,
                                        [&](const in6_addr& host) { return same(host, begun_by); });
  if (one == of_remote_hosts_.end()) return;
  *one = of_remote_hosts_.back();
  of_remote_hosts_.pop_back();
}

socket_conversation::socket_conversation(poller& by, conversation_count& count,
                                         const message& request, const route& to,
                                         user& owner) noexcept
    : watched{by},
      count_{count},
      begun_by_{this_host},
      user_{&owner},
      route_{to},
      request_{request} {
  count_.add(begun_by_);
  request_.source.scope = request_.destination.scope = 0;
}

socket_conversation::socket_conversation(poller& by, conversation_count& count, unique_fd socket,
                                         const route& from) noexcept
    : watched{by},
      count_{count},
      begun_by_{from.peer_host},
      socket_{std::move(socket)},
      route_{from},
      is_answered_{true} {
  count_.add(begun_by_);
}

socket_conversation::~socket_conversation() {
  close_socket();
  if (destroyed_ != nullptr) *destroyed_ = true;
  count_.remove(begun_by_);
}

bool socket_conversation::begin(time now) noexcept {
  if (!is_registered()) return false;
  give_up_at_ = now + takeover_time;
  const int error = attempt();
  if (is_lack(error)) return false;
  if (error != 0) fail(error, now);
  return true;
}

/// Makes the socket and sends the request. 0, or an errno value.
int socket_conversation::attempt() noexcept {
  int error = 0;
  if (route_.by_tcp) {
    const in6_addr* source = route_.from_source ? &request_.source.address : nullptr;
    if (!connect_tcp(route_.host, route_.port, socket_, source)) error = errno;
  } else {
    socket_ = connect_to_holder(request_.space, request_.destination, error);
  }
  if (error != 0) {
    socket_.reset();
    return error;
  }
  state_ = route_.by_tcp ? state::connecting : state::open;
  received_ = sent_ = out_count_ = 0;
  put(request_);
  if (state_ == state::open) flush();
  watch_socket();
  return 0;
}

/// The socket is of no use: waits for another attempt, or for the deadline that tells the user.
void socket_conversation::fail(int error, time now) noexcept {
  close_socket();
  // EAGAIN: a listener that accepts nothing now may do so later; the user has timers of its own.
  const bool is_unread = is_of_entrance(error, route_.by_tcp) && now + retry_period < give_up_at_;
  const bool again = !is_answered_ && (error == EAGAIN || is_unread);
  state_ = state::waiting;
  end_error_ = again ? 0 : error;
  set_deadline(again ? now + retry_period : now);
}

void socket_conversation::on_time(time now) noexcept {
  if (state_ != state::waiting) return;
  if (end_error_ != 0) return end(end_error_);
  if (const int error = attempt(); error != 0) fail(is_lack(error) ? EAGAIN : error, now);
}

void socket_conversation::end(int error) noexcept {
  close_socket();
  state_ = state::over;
  set_deadline(time::max());
  if (route_.by_tcp && error == ECONNREFUSED && !is_answered_)
    warn_of_refusal(route_.host, route_.port);
  if (user_ != nullptr) user_->on_end(error);
}

void socket_conversation::close_socket() noexcept {
  if (!socket_) return;
  unwatch(socket_.get());
  socket_.reset();
}

void socket_conversation::close_copies() noexcept {
  socket_.reset();
  state_ = state::over;
}

// ---- sending

void socket_conversation::send(const message& one) noexcept {
  if (state_ == state::over || state_ == state::waiting) return;  // No peer is there.
  put(one);
  if (state_ != state::open) return;
  flush();
  watch_socket();
}

/// Queues a message. Gives up the peer if unsent_messages_max messages are queued already.
void socket_conversation::put(const message& one) noexcept {
  if (out_count_ == unsent_messages_max) {
    close_socket();
    state_ = state::waiting;
    end_error_ = ETIMEDOUT;
    set_deadline(time{});
    return;
  }
  out_[out_count_] = one;
  out_[out_count_].source.scope = out_[out_count_].destination.scope = 0;
  ++out_count_;
}

/// Sends what the socket takes. Its errors come as events, too, and are handled there.
void socket_conversation::flush() noexcept {
  while (out_count_ != 0) {
    const auto* bytes = reinterpret_cast<const std::byte*>(out_.data());
    const ssize_t sent =
        ::send(socket_.get(), bytes + sent_, sizeof(message) - sent_, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0) return;
    sent_ += static_cast<std::size_t>(sent);
    if (sent_ < sizeof(message)) continue;
    sent_ = 0;
    std::move(out_.begin() + 1, out_.begin() + static_cast<std::ptrdiff_t>(out_count_),
              out_.begin());
    --out_count_;
  }
}

// ---- receiving

void socket_conversation::set_user(user& owner) noexcept {
  user_ = &owner;
  watch_socket();
}

/// Without a user, nothing is read.
void socket_conversation::watch_socket() noexcept {
  if (!socket_ || user_ == nullptr) return;
  const std::uint32_t output =
      state_ == state::connecting || out_count_ != 0 ? std::uint32_t{EPOLLOUT} : 0u;
  if (watch(socket_.get(), EPOLLIN | EPOLLRDHUP | output)) return;
  close_socket();
  state_ = state::waiting;
  end_error_ = ENOMEM;
  set_deadline(time{});
}

void socket_conversation::on_event(std::uint32_t events, time now) noexcept {
  if (!socket_) return;
  if (state_ == state::connecting) {
    int error = 0;
    socklen_t length = sizeof error;
    if (::getsockopt(socket_.get(), SOL_SOCKET, SO_ERROR, &error, &length) != 0) error = errno;
    if (error != 0) return fail(error, now);
    if ((events & EPOLLOUT) == 0) return;
    state_ = state::open;
  }
  // Messages that the peer sent before it went come first.
  if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR | EPOLLRDHUP)) != 0 && !read(now)) return;
  flush();
  watch_socket();
}

/// Reads some messages. False: the socket, or this object, is gone.
bool socket_conversation::read(time now) noexcept {
  int reset = 0;
  for (int n = 0; n < messages_at_once_max;) {
    auto* const bytes = reinterpret_cast<std::byte*>(&in_);
    // With MSG_TRUNC, recv() returns the full length of a packet that is too long.
    const ssize_t got = ::recv(socket_.get(), bytes + received_, sizeof in_ - received_,
                               route_.by_tcp ? MSG_DONTWAIT : MSG_DONTWAIT | MSG_TRUNC);
    if (got < 0 && would_block(errno) && reset == 0) return true;
    if (got < 0 && reset == 0 && !would_block(errno)) {
      reset = errno;  // A local socket tells of the end before the peer's last messages.
      continue;
    }
    if (got <= 0) {
      fail(reset != 0 ? reset : ECONNRESET, now);
      return false;
    }
    received_ += static_cast<std::size_t>(got);
    if (received_ < sizeof in_ && route_.by_tcp) continue;
    if (received_ != sizeof in_ || !is_valid(in_) || in_.is_request()) {
      is_answered_ = true;
      fail(ECONNRESET, now);
      return false;
    }
    received_ = 0;
    ++n;
    if (!take()) return false;
  }
  return true;
}

/// Shows a valid message to the user. False: the socket, or this object, is gone.
bool socket_conversation::take() noexcept {
  const bool is_first = !is_answered_;
  is_answered_ = true;
  if (is_first && in_.kind == message_kind::reject && in_.reason == reason_no_listener) {
    end(ECONNREFUSED);
    return false;
  }
  bool destroyed = false;
  destroyed_ = &destroyed;
  const message shown = in_;
  user_->on_message(shown);
  if (destroyed) return false;
  destroyed_ = nullptr;
  return static_cast<bool>(socket_);
}

}  // namespace softverbs::cm
