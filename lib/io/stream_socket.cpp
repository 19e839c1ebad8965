#include "io/stream_socket.hpp"

#include "base/descriptors.hpp"
#include "base/failures.hpp"

#include <cordma/coro/sleep.hpp>
#include <cordma/io/executor.hpp>

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

namespace cordma {
namespace {

using namespace std::string_literals;

constexpr std::chrono::milliseconds backlog_pause{1};

failure::object_id name_of(int fd) noexcept { return {"fd", std::uint64_t(fd)}; }

unique_fd make_socket(const socket_address& address) {
  unique_fd fd{::socket(address.data()->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)};
  if (!fd.is_open()) {
    throw error{errno_failure(errno, "socket", {}, way_out_of_descriptors(errno))};
  }
  return fd;
}

void set_option(int fd, int level, int option, int value = 1) {
  if (::setsockopt(fd, level, option, &value, sizeof value) != 0) {
    throw error{errno_failure(errno, "setsockopt", name_of(fd))};
  }
}

/// Returns the error by which a connection has ended; ENOTCONN: there never was one.
int why_not_connected(int fd) noexcept {
  int error = 0;
  socklen_t size_bytes = sizeof error;
  const bool is_told = ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size_bytes) == 0;
  return is_told && error != 0 ? error : ENOTCONN;
}

socket_address address_of(int fd, int (*ask)(int, sockaddr*, socklen_t*), const char* call) {
  sockaddr_storage storage{};
  socklen_t size_bytes = sizeof storage;
  auto* const address = reinterpret_cast<sockaddr*>(&storage);
  if (ask(fd, address, &size_bytes) != 0) {
    const int why = errno == ENOTCONN ? why_not_connected(fd) : errno;
    throw error{errno_failure(why, call, name_of(fd))};
  }
  return {address, size_bytes};
}

const char* way_out_of_connect(int errno_value) noexcept {
  switch (errno_value) {
    case ENOENT: return "no such socket: is the server up, and this its path?";
    case ECONNREFUSED: return "nobody listens there: is the server up, on this address and port?";
    case ETIMEDOUT: return "no answer: is the host up, and does a firewall let this port through?";
    case EHOSTUNREACH:
    case ENETUNREACH: return "no route there: check the address and this host's network";
    default: return "";
  }
}

const char* way_out_of_listen(int errno_value) noexcept {
  switch (errno_value) {
    case EADDRINUSE:
      return "the port is taken; stop who has it (ss -ltnp), or take another, 0 for any free one";
    case EACCES: return "ports below 1024 need CAP_NET_BIND_SERVICE; take a higher one";
    case EADDRNOTAVAIL: return "not an address of this host (ip addr)";
    case ENOENT: return "the folder of that path does not exist";
    default: return "";
  }
}

failure address_failure(int errno_value, const char* call, const socket_address& address,
                        const char* way_out) {
  std::string detail = address.to_string();
  if (*way_out != '\0') detail.append(": ").append(way_out);
  return errno_failure(errno_value, call, {}, std::string_view{detail});
}

bool would_block(int errno_value) noexcept {
  return errno_value == EAGAIN || errno_value == EWOULDBLOCK;
}

/// Returns the file of a Unix socket's address; null if it has none.
const char* path_of(const socket_address& address) noexcept {
  if (!address.is_unix()) return nullptr;
  const char* const path = reinterpret_cast<const sockaddr_un*>(address.data())->sun_path;
  return address.size_bytes() > offsetof(sockaddr_un, sun_path) && *path != '\0' ? path : nullptr;
}

int bind_to(int fd, const socket_address& local) noexcept {
  return ::bind(fd, local.data(), local.size_bytes()) == 0 ? 0 : errno;
}

/// Returns the file of a Unix socket's address, without following a link; nothing if there is none.
std::optional<struct stat> file_of(const socket_address& address) noexcept {
  const char* const path = path_of(address);
  struct stat file{};
  if (path == nullptr || ::lstat(path, &file) != 0) return std::nullopt;
  return file;
}

/// Returns true for the socket file of a process that has ended: nobody listens there.
bool is_left_behind(const socket_address& address) {
  const auto file = file_of(address);
  if (!file || !S_ISSOCK(file->st_mode)) return false;  // Connecting to any file is refused.
  const unique_fd fd = make_socket(address);
  return ::connect(fd.get(), address.data(), address.size_bytes()) != 0 && errno == ECONNREFUSED;
}

/// Removes a Unix socket's file, unless what lies there now is another one's.
void remove_file(const socket_address& local, std::uint64_t device, std::uint64_t inode) noexcept {
  const auto file = file_of(local);
  if (file && file->st_dev == device && file->st_ino == inode) ::unlink(path_of(local));
}

const char* way_out_of_bind(int errno_value, const socket_address& local) noexcept {
  if (!local.is_unix() || errno_value != EADDRINUSE) return way_out_of_listen(errno_value);
  const auto file = file_of(local);
  return file && !S_ISSOCK(file->st_mode)
             ? "a file that is no socket lies there; remove it, or take another path"
             : "another process listens there; stop it, or take another path";
}

constexpr const char* way_out_of_claim =
    "a file beside it, its name with .cordma, cannot be made: is there a folder to write to?";

/// Claims a Unix socket's path from bind(2) to listen(2): in between, its file looks like one that
/// was left behind. The claim is a locked file beside it, which goes with this object.
class path_claim {
 public:
  /// \errors EADDRINUSE: another process has the claim; those of open(2).
  explicit path_claim(const socket_address& address) {
    const char* const path = path_of(address);
    if (path == nullptr) return;
    file_ = path + ".cordma"s;
    unique_fd fd{::open(file_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600)};
    if (!fd.is_open()) throw error{address_failure(errno, "open", address, way_out_of_claim)};
    struct stat file{};  // Without a name, it was the claim of a process that has released it.
    const bool is_locked = ::flock(fd.get(), LOCK_EX | LOCK_NB) == 0;
    if (!is_locked || ::fstat(fd.get(), &file) != 0 || file.st_nlink == 0) {
      throw error{address_failure(EADDRINUSE, "bind", address,
                                  "another process takes that path at this moment")};
    }
    fd_ = std::move(fd);
  }
  path_claim(path_claim&&) = delete;
  ~path_claim() {
    if (fd_.is_open()) ::unlink(file_.c_str());
  }

 private:
  std::string file_;
  unique_fd fd_;  // Unlocks the file after its end.
};

/// Returns the result of a background connect: 0, an errno, or EINPROGRESS.
int connect_outcome(int fd) noexcept {
  int outcome = 0;
  socklen_t size_bytes = sizeof outcome;
  if (::getsockopt(fd, SOL_SOCKET, SO_ERROR, &outcome, &size_bytes) != 0) return errno;
  sockaddr_storage peer;
  size_bytes = sizeof peer;
  const bool is_connected = ::getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &size_bytes) == 0;
  return outcome == 0 && !is_connected && errno == ENOTCONN ? EINPROGRESS : outcome;
}

}  // namespace

stream_socket::stream_socket(cordma::executor& executor, unique_fd socket)
    : executor_{&executor}, fd_{std::move(socket)} {
  const int flags = ::fcntl(fd_.get(), F_GETFL);
  if (flags < 0 || ::fcntl(fd_.get(), F_SETFL, flags | O_NONBLOCK) != 0) {
    throw error{errno_failure(errno, "fcntl", name_of(fd_.get()))};
  }
  if (!local_address().is_unix()) set_option(fd_.get(), IPPROTO_TCP, TCP_NODELAY);
}

task<stream_socket> stream_socket::connect(cordma::executor& executor, socket_address peer) {
  unique_fd fd = make_socket(peer);
  int outcome = ::connect(fd.get(), peer.data(), peer.size_bytes()) == 0 ? 0 : errno;
  // A Unix socket has no room in its listener's backlog, and nothing tells when there is.
  while (outcome == EAGAIN) {
    co_await sleep_for(backlog_pause);
    outcome = ::connect(fd.get(), peer.data(), peer.size_bytes()) == 0 ? 0 : errno;
  }
  // An interrupted connect continues in the background, as one in progress does.
  if (outcome == EINPROGRESS || outcome == EINTR) {
    do {
      co_await writable(executor, fd.get());
      outcome = connect_outcome(fd.get());
    } while (outcome == EINPROGRESS);  // Repeats after a wake-up without cause.
  }
  if (outcome != 0) {
    throw error{address_failure(outcome, "connect", peer, way_out_of_connect(outcome))};
  }
  co_return stream_socket{executor, std::move(fd)};
}

void stream_socket::keep_alive(time_span interval, unsigned probes) {
  if (local_address().is_unix()) return;
  constexpr std::int64_t seconds_max = 32767;  // tcp(7): the kernel accepts no more.
  constexpr unsigned probes_max = 127;
  const auto seconds = static_cast<int>(
      std::clamp(std::int64_t{std::chrono::ceil<std::chrono::seconds>(duration{interval}).count()},
                 std::int64_t{1}, seconds_max));
  set_option(fd_.get(), IPPROTO_TCP, TCP_KEEPIDLE, seconds);
  set_option(fd_.get(), IPPROTO_TCP, TCP_KEEPINTVL, seconds);
  set_option(fd_.get(), IPPROTO_TCP, TCP_KEEPCNT,
             static_cast<int>(std::clamp(probes, 1u, probes_max)));
  set_option(fd_.get(), SOL_SOCKET, SO_KEEPALIVE);
}

void stream_socket::shut_down_writing() noexcept { ::shutdown(fd_.get(), SHUT_WR); }

socket_address stream_socket::local_address() const {
  return address_of(fd_.get(), &::getsockname, "getsockname");
}

socket_address stream_socket::peer_address() const {
  return address_of(fd_.get(), &::getpeername, "getpeername");
}

stream_listener::stream_listener(cordma::executor& executor, const socket_address& local,
                                 int backlog)
    : executor_{&executor}, fd_{make_socket(local)} {
  // A server that restarts must not wait until the connections of its former process time out.
  if (!local.is_unix()) set_option(fd_.get(), SOL_SOCKET, SO_REUSEADDR);
  const path_claim claim{local};
  int outcome = bind_to(fd_.get(), local);
  if (outcome == EADDRINUSE && is_left_behind(local)) {
    ::unlink(path_of(local));
    outcome = bind_to(fd_.get(), local);
  }
  if (outcome != 0) {
    throw error{address_failure(outcome, "bind", local, way_out_of_bind(outcome, local))};
  }
  if (const auto made = file_of(local)) {
    file_device_ = made->st_dev;
    file_inode_ = made->st_ino;
  }
  if (::listen(fd_.get(), backlog) != 0) {
    const failure why = address_failure(errno, "listen", local, way_out_of_listen(errno));
    remove_file(local, file_device_, file_inode_);
    throw error{why};
  }
}

void stream_listener::close() noexcept {
  if (!fd_.is_open()) return;
  // A descriptor that a child process inherited, or a poll in the kernel, keeps the socket open.
  // After the shutdown the socket listens no longer all the same.
  ::shutdown(fd_.get(), SHUT_RD);
  remove_file(local_address(), file_device_, file_inode_);
  fd_.reset();
}

socket_address stream_listener::local_address() const {
  return address_of(fd_.get(), &::getsockname, "getsockname");
}

bool stream_listener::accept_op::attempt(fd_operation& self) noexcept {
  auto& op = static_cast<accept_op&>(self);
  for (;;) {
    op.accepted_.reset(::accept4(op.fd(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (op.accepted_.is_open()) return true;
    if (would_block(errno)) return false;
    switch (errno) {
      case EINTR:
      // Errors of a connection that was lost while it waited (accept(2)): take the next.
      case ECONNABORTED:
      case ENETDOWN:
      case EPROTO:
      case ENOPROTOOPT:
      case EHOSTDOWN:
      case ENONET:
      case EHOSTUNREACH:
      case ENETUNREACH: continue;
      default: op.errno_ = errno; return true;
    }
  }
}

result<stream_socket> stream_listener::accept_op::take_result() {
  if (was_stopped()) return cancelled_result;
  if (lacks_descriptors(errno_)) {
    const std::string detail = "the connection stays in the backlog; "s + more_descriptors;
    return errno_failure(errno_, "accept4", name_of(fd()), std::string_view{detail});
  }
  if (errno_ != 0) return errno_failure(errno_, "accept4", name_of(fd()));
  try {
    return stream_socket{executor(), std::move(accepted_)};
  } catch (const error& e) {
    return e.failure();
  }
}

}  // namespace cordma
