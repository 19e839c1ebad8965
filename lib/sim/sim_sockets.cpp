#include "sim_sockets.hpp"

#include "host_state.hpp"
#include "world_state.hpp"

#include <netinet/in.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace cordma::sim::detail {
namespace {

using cordma::detail::socket_option;
using cordma::detail::socket_side;

/// Bytes that a side may have sent and the other has not read.
constexpr std::size_t window_bytes = 64 * 1024;
constexpr std::size_t backlog_max = 128;

/// Returns the number of a socket, for traces.
unsigned number_of(int fd) noexcept { return unsigned(fd - sim_sockets::first_fd); }

/// Returns the number of the host that has an address; 0: none.
unsigned host_of(const socket_address& address) noexcept {
  if (!address.is_ipv6()) return 0;
  const in6_addr& ip = reinterpret_cast<const sockaddr_in6*>(address.data())->sin6_addr;
  return ip.s6_addr[0] == 0xfd ? unsigned{ip.s6_addr[14]} << 8 | ip.s6_addr[15] : 0;
}

}  // namespace

sim_sockets::socket* sim_sockets::find(int fd) noexcept {
  const auto found = sockets_.find(fd);
  return found == sockets_.end() ? nullptr : &found->second;
}

sim_sockets::socket& sim_sockets::add() noexcept {
  socket& made = sockets_[++last_fd_];
  made.fd = last_fd_;
  return made;
}

/// Has `f` called with the sockets of the peer's process. Another process on that host resets the
/// connection, which it does not know.
template <class F>
void sim_sockets::tell_peer(socket& from, F f) {
  world_state& world = host_.world();
  const far_end to = from.peer;
  const far_end self{host_.number(), host_.incarnation(), from.fd};
  host_state* const peer = world.host_at(from.peer_host);
  if (peer == nullptr) return;
  const auto arrive = [peer, to, self, f = std::move(f), &world] {
    if (!peer->is_running()) return;
    if (peer->incarnation() == to.incarnation) return f(peer->sockets(), to.fd);
    host_state* const sender = world.host_at(self.host);
    time_point none{};
    world.network().post(*peer, *sender, none, [sender, self] {
      if (sender->is_running() && sender->incarnation() == self.incarnation)
        sender->sockets().on_end(self.fd, ECONNRESET);
    });
  };
  world.network().post(host_, *peer, from.last_arrival, arrive);
}

int sim_sockets::make(int family) noexcept {
  if (family != AF_INET6 && family != AF_INET) return -EAFNOSUPPORT;
  return host_.world().breaks_socket() ? -EMFILE : add().fd;
}

int sim_sockets::adopt(int fd) noexcept { return find(fd) == nullptr ? -ENOTSOCK : 0; }

int sim_sockets::bind(int fd, const socket_address& local) noexcept {
  socket& s = *find(fd);
  s.port = local.port();
  if (s.port == 0) {
    s.port = ++last_port_;
    return 0;
  }
  const auto has_port = [&](const auto& other) {
    return other.first != fd && other.second.port == s.port && other.second.now == state::listening;
  };
  return std::ranges::any_of(sockets_, has_port) ? -EADDRINUSE : 0;
}

int sim_sockets::listen(int fd, int /*backlog*/) noexcept {
  find(fd)->now = state::listening;
  return 0;
}

int sim_sockets::connect(int fd, const socket_address& to) noexcept {
  socket& s = *find(fd);
  // A loopback address is that of any host.
  const unsigned number = to.is_loopback() ? host_.number() : host_of(to);
  host_state* const peer = host_.world().host_at(number);
  if (peer == nullptr) return -EHOSTUNREACH;
  if (s.port == 0) s.port = ++last_port_;
  s.now = state::asking;
  s.peer_host = number;
  s.peer_port = to.port();
  const far_end self{host_.number(), host_.incarnation(), fd};
  host_.world().network().post(host_, *peer, s.last_arrival,
                               [peer, self, port = s.port, asked = s.peer_port] {
                                 peer->sockets().on_question(self, port, self.host, asked);
                               });
  return -EINPROGRESS;
}

/// Answers another host's question for a connection to `port` of this one.
void sim_sockets::on_question(far_end from, std::uint16_t from_port, unsigned from_host,
                              std::uint16_t port) {
  if (!host_.has_power()) return;
  world_state& world = host_.world();
  host_state* const asking = world.host_at(from_host);
  far_end answer{host_.number(), host_.incarnation(), -1};
  const auto listening = std::ranges::find_if(sockets_, [&](const auto& one) {
    return one.second.now == state::listening && one.second.port == port;
  });
  const bool is_here = host_.is_running() && listening != sockets_.end() &&
                       listening->second.backlog.size() < backlog_max;
  time_point none{};
  if (is_here) {
    socket& made = add();
    answer.fd = made.fd;
    made.now = state::connected;
    made.port = port;
    made.peer_host = from_host;
    made.peer_port = from_port;
    made.peer = from;
    listening->second.backlog.push_back(answer.fd);
    host_.something_came();
  }
  time_point& last = is_here ? sockets_[answer.fd].last_arrival : none;
  world.network().post(host_, *asking, last, [asking, from, answer] {
    if (asking->incarnation() == from.incarnation && asking->is_running())
      asking->sockets().on_answer(from.fd, answer, answer.fd < 0 ? ECONNREFUSED : 0);
  });
}

void sim_sockets::on_answer(int fd, far_end from, int error) {
  socket* const s = find(fd);
  if (s == nullptr) {
    // The socket was closed meanwhile.
    if (error != 0) return;
    socket gone;
    gone.peer_host = from.host;
    gone.peer = from;
    tell_peer(gone, [](sim_sockets& there, int at) { there.on_end(at, ECONNRESET); });
    return;
  }
  host_.world().note(either(error == 0, "socket {} is connected", "socket {} is refused"), host_,
                     number_of(fd));
  s->now = error == 0 ? state::connected : state::refused;
  s->error = error;
  s->peer = from;
  host_.something_came();
}

int sim_sockets::accept(int fd) noexcept {
  socket& s = *find(fd);
  if (s.backlog.empty()) return -EAGAIN;
  const int next = s.backlog.front();
  s.backlog.pop_front();
  return next;
}

int sim_sockets::broken(socket& s) {
  if (!host_.world().breaks_socket()) return 0;
  end(s, ECONNRESET);
  s.now = state::refused;
  return ECONNRESET;
}

std::ptrdiff_t sim_sockets::send(int fd, std::span<const std::byte> from) noexcept {
  socket& s = *find(fd);
  if (s.now == state::refused) return s.error != 0 ? -std::exchange(s.error, 0) : -EPIPE;
  if (s.now != state::connected || s.has_ended) return -EPIPE;
  const std::size_t room = window_bytes - s.in_flight;
  if (room == 0) return -EAGAIN;
  if (from.empty()) return 0;
  if (host_.world().interrupts()) return -EINTR;
  if (const int error = broken(s)) return -error;
  const std::size_t n = host_.world().some_of(std::min(room, from.size()));
  s.in_flight += n;
  host_.world().note("socket {} sends {} bytes", host_, number_of(fd), n);
  tell_peer(s, [bytes = std::vector<std::byte>(from.begin(), from.begin() + std::ptrdiff_t(n))](
                   sim_sockets& there, int at) { there.on_bytes(at, bytes); });
  return std::ptrdiff_t(n);
}

void sim_sockets::on_bytes(int fd, const std::vector<std::byte>& bytes) {
  socket* const s = find(fd);
  if (s == nullptr) return;
  host_.world().note("socket {} gets {} bytes", host_, number_of(fd), bytes.size());
  s->received.insert(s->received.end(), bytes.begin(), bytes.end());
  host_.something_came();
}

std::ptrdiff_t sim_sockets::receive(int fd, std::span<std::byte> into) noexcept {
  socket& s = *find(fd);
  if (s.now == state::refused && s.error != 0) return -std::exchange(s.error, 0);
  if (s.received.empty()) return s.is_ended || s.now == state::refused ? 0 : -EAGAIN;
  if (into.empty()) return 0;
  if (host_.world().interrupts()) return -EINTR;
  if (const int error = broken(s)) return -error;
  const std::size_t n = host_.world().some_of(std::min(into.size(), s.received.size()));
  std::copy_n(s.received.begin(), n, into.begin());
  s.received.erase(s.received.begin(), s.received.begin() + std::ptrdiff_t(n));
  if (!s.is_ended) tell_peer(s, [n](sim_sockets& there, int at) { there.on_taken(at, n); });
  return std::ptrdiff_t(n);
}

void sim_sockets::on_taken(int fd, std::size_t bytes) {
  socket* const s = find(fd);
  if (s == nullptr) return;
  s->in_flight -= std::min(bytes, s->in_flight);
  host_.something_came();
}

int sim_sockets::shut_down(int fd, socket_side side) noexcept {
  socket& s = *find(fd);
  if (side == socket_side::writing && s.now == state::connected) end(s, 0);
  if (side == socket_side::reading && s.now == state::listening) s.now = state::fresh;
  return 0;
}

/// Ends what this side sends, once. \param error  the peer is reset by it; 0: it reads the end.
void sim_sockets::end(socket& s, int error) {
  if (std::exchange(s.has_ended, true) && error == 0) return;
  host_.world().note(either(error == 0, "socket {} ends", "socket {} resets"), host_,
                     number_of(s.fd));
  tell_peer(s, [error](sim_sockets& there, int at) { there.on_end(at, error); });
}

void sim_sockets::on_end(int fd, int error) {
  socket* const s = find(fd);
  if (s == nullptr) return;
  host_.world().note(either(error == 0, "socket {} gets the end", "socket {} is reset"), host_,
                     number_of(fd));
  s->is_ended = true;
  if (error != 0) {
    s->now = state::refused;
    s->error = error;
  }
  host_.something_came();
}

int sim_sockets::local_address(int fd, socket_address& out) noexcept {
  out = host_.address(find(fd)->port);
  return 0;
}

int sim_sockets::peer_address(int fd, socket_address& out) noexcept {
  const socket& s = *find(fd);
  const host_state* const peer = host_.world().host_at(s.peer_host);
  if (s.now != state::connected || peer == nullptr) return -ENOTCONN;
  out = peer->address(s.peer_port);
  return 0;
}

int sim_sockets::take_error(int fd) noexcept { return -std::exchange(find(fd)->error, 0); }

int sim_sockets::set_option(int /*fd*/, socket_option /*option*/, int /*value*/) noexcept {
  return 0;
}

void sim_sockets::close(int fd) noexcept {
  socket* const s = find(fd);
  if (s == nullptr) return;
  for (const int waiting : std::exchange(s->backlog, {})) close(waiting);
  // Unread bytes reset the connection, as in TCP.
  if (s->now == state::connected) end(*s, s->received.empty() ? 0 : ECONNRESET);
  sockets_.erase(fd);
}

void sim_sockets::mute() noexcept {
  for (auto& [fd, s] : sockets_) s.peer_host = 0;
}

void sim_sockets::close_all() noexcept {
  while (!sockets_.empty()) close(sockets_.begin()->first);
}

short sim_sockets::events_of(int fd) const noexcept {
  const auto found = sockets_.find(fd);
  if (found == sockets_.end()) return POLLNVAL;
  const socket& s = found->second;
  unsigned events = 0;
  if (!s.received.empty() || s.is_ended || !s.backlog.empty()) events |= POLLIN;
  if (s.is_ended) events |= POLLRDHUP;
  if (s.now == state::connected && s.in_flight < window_bytes) events |= POLLOUT;
  if (s.now == state::refused) events |= POLLIN | POLLOUT | POLLERR | POLLHUP | POLLRDHUP;
  return short(events);
}

}  // namespace cordma::sim::detail
