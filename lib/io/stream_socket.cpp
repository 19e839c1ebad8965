#include "io/stream_socket.hpp"

#include "base/descriptors.hpp"
#include "base/failures.hpp"
#include "io/host_calls.hpp"

#include <cordma/coro/sleep.hpp>
#include <cordma/io/executor.hpp>

#include <fcntl.h>
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
using detail::socket_calls;
using detail::socket_option;
using detail::socket_side;
using detail::unique_socket;

constexpr std::chrono::milliseconds backlog_pause{1};

failure::object_id name_of(int fd) noexcept { return {"fd", std::uint64_t(fd)}; }

socket_calls& calls_of(cordma::executor& executor) noexcept {
  return executor.reactor().host().sockets();
}

unique_socket make_socket(socket_calls& calls, const socket_address& address) {
  const int fd = calls.make(address.data()->sa_family);
  if (fd < 0) throw error{errno_failure(-fd, "socket", {}, way_out_of_descriptors(-fd))};
  return {calls, fd};
}

void set_option(const unique_socket& socket, socket_option option, int value = 1) {
  if (const int outcome = socket.calls().set_option(socket.get(), option, value); outcome < 0)
    throw error{errno_failure(-outcome, "setsockopt", name_of(socket.get()))};
}

socket_address local_address_of(const unique_socket& socket) {
  socket_address address;
  if (const int outcome = socket.calls().local_address(socket.get(), address); outcome < 0)
    throw error{errno_failure(-outcome, "getsockname", name_of(socket.get()))};
  return address;
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

/// Returns the file of a Unix socket's address; null if it has none.
const char* path_of(const socket_address& address) noexcept {
  if (!address.is_unix()) return nullptr;
  const char* const path = reinterpret_cast<const sockaddr_un*>(address.data())->sun_path;
  return address.size_bytes() > offsetof(sockaddr_un, sun_path) && *path != '\0' ? path : nullptr;
}

/// Returns the file of a Unix socket's address, without following a link; nothing if there is none.
std::optional<struct stat> file_of(const socket_address& address) noexcept {
  const char* const path = path_of(address);
  struct stat file{};
  if (path == nullptr || ::lstat(path, &file) != 0) return std::nullopt;
  return file;
}

/// Returns true for the socket file of a process that has ended: nobody listens there.
bool is_left_behind(socket_calls& calls, const socket_address& address) {
  const auto file = file_of(address);
  if (!file || !S_ISSOCK(file->st_mode)) return false;  // Connecting to any file is refused.
  const unique_socket socket = make_socket(calls, address);
  return calls.connect(socket.get(), address) == -ECONNREFUSED;
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
int connect_outcome(const unique_socket& socket) noexcept {
  if (const int error = socket.calls().take_error(socket.get()); error != 0) return -error;
  socket_address peer;
  const int asked = socket.calls().peer_address(socket.get(), peer);
  return asked == -ENOTCONN ? EINPROGRESS : 0;
}

}  // namespace

stream_socket::stream_socket(cordma::executor& executor, unique_socket socket)
    : executor_{&executor}, socket_{std::move(socket)} {
  if (const int outcome = calls().adopt(fd()); outcome < 0)
    throw error{errno_failure(-outcome, "fcntl", name_of(fd()))};
  if (!local_address().is_unix()) set_option(socket_, socket_option::no_delay);
}

stream_socket::stream_socket(cordma::executor& executor, unique_fd socket)
    : stream_socket{executor, unique_socket{calls_of(executor), socket.release()}} {}

task<stream_socket> stream_socket::connect(cordma::executor& executor, socket_address peer) {
  socket_calls& calls = calls_of(executor);
  unique_socket socket = make_socket(calls, peer);
  int outcome = -calls.connect(socket.get(), peer);
  // A Unix socket has no room in its listener's backlog, and nothing tells when there is.
  while (outcome == EAGAIN) {
    co_await sleep_for(backlog_pause);
    outcome = -calls.connect(socket.get(), peer);
  }
  // An interrupted connect continues in the background, as one in progress does.
  if (outcome == EINPROGRESS || outcome == EINTR) {
    do {
      co_await writable(executor, socket.get());
      outcome = connect_outcome(socket);
    } while (outcome == EINPROGRESS);  // Repeats after a wake-up without cause.
  }
  if (outcome != 0) {
    throw error{address_failure(outcome, "connect", peer, way_out_of_connect(outcome))};
  }
  co_return stream_socket{executor, std::move(socket)};
}

void stream_socket::keep_alive(time_span interval, unsigned probes) {
  if (local_address().is_unix()) return;
  constexpr std::int64_t seconds_max = 32767;  // tcp(7): the kernel accepts no more.
  constexpr unsigned probes_max = 127;
  const auto seconds = static_cast<int>(
      std::clamp(std::int64_t{std::chrono::ceil<std::chrono::seconds>(duration{interval}).count()},
                 std::int64_t{1}, seconds_max));
  set_option(socket_, socket_option::probe_after_s, seconds);
  set_option(socket_, socket_option::probe_interval_s, seconds);
  set_option(socket_, socket_option::probes_max,
             static_cast<int>(std::clamp(probes, 1u, probes_max)));
  set_option(socket_, socket_option::keep_alive);
}

void stream_socket::shut_down_writing() noexcept {
  static_cast<void>(calls().shut_down(fd(), socket_side::writing));
}

socket_address stream_socket::local_address() const { return local_address_of(socket_); }

socket_address stream_socket::peer_address() const {
  socket_address address;
  int outcome = calls().peer_address(fd(), address);
  // A connection that has ended tells why; of another, ENOTCONN is all.
  if (outcome == -ENOTCONN)
    if (const int why = calls().take_error(fd()); why != 0) outcome = why;
  if (outcome < 0) throw error{errno_failure(-outcome, "getpeername", name_of(fd()))};
  return address;
}

stream_listener::stream_listener(cordma::executor& executor, const socket_address& local,
                                 int backlog)
    : executor_{&executor}, socket_{make_socket(calls_of(executor), local)} {
  socket_calls& calls = socket_.calls();
  // A server that restarts must not wait until the connections of its former process time out.
  if (!local.is_unix()) set_option(socket_, socket_option::reuse_address);
  const path_claim claim{local};
  int outcome = -calls.bind(fd(), local);
  if (outcome == EADDRINUSE && is_left_behind(calls, local)) {
    ::unlink(path_of(local));
    outcome = -calls.bind(fd(), local);
  }
  if (outcome != 0) {
    throw error{address_failure(outcome, "bind", local, way_out_of_bind(outcome, local))};
  }
  if (const auto made = file_of(local)) {
    file_device_ = made->st_dev;
    file_inode_ = made->st_ino;
  }
  outcome = -calls.listen(fd(), backlog);
  if (outcome != 0) {
    remove_file(local, file_device_, file_inode_);
    throw error{address_failure(outcome, "listen", local, way_out_of_listen(outcome))};
  }
}

void stream_listener::close() noexcept {
  if (!socket_.is_open()) return;
  // A descriptor that a child process inherited, or a poll in the kernel, keeps the socket open.
  // After the shutdown the socket listens no longer all the same.
  static_cast<void>(socket_.calls().shut_down(fd(), socket_side::reading));
  remove_file(local_address(), file_device_, file_inode_);
  socket_.reset();
}

socket_address stream_listener::local_address() const { return local_address_of(socket_); }

bool stream_listener::accept_op::attempt(fd_operation& self) noexcept {
  auto& op = static_cast<accept_op&>(self);
  for (;;) {
    const int outcome = op.accepted_.calls().accept(op.fd());
    if (outcome >= 0) {
      op.accepted_.reset(outcome);
      return true;
    }
    switch (-outcome) {
      case EAGAIN: return false;
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
      default: op.errno_ = -outcome; return true;
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
