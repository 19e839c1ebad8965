#include "link/socket_names.hpp"

#include "link/hints.hpp"

#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstddef>
#include <cstdlib>
#include <cstring>

namespace softverbs {

namespace {

constinit std::atomic<bool> any_uid{false};

}  // namespace

name_text::name_text(const char* format, ...) noexcept {
  std::va_list values;
  va_start(values, format);
  const int bytes = std::vsnprintf(text_, sizeof text_, format, values);
  va_end(values);
  size_ = std::clamp<std::size_t>(static_cast<std::size_t>(bytes), 0, sizeof text_ - 1);
}

socket_name::socket_name(std::string_view text) noexcept {
  address_.sun_family = AF_UNIX;
  text = text.substr(0, sizeof address_.sun_path - 1);
  const std::size_t bytes = text.copy(address_.sun_path + 1, text.size());
  length_ = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + bytes);
}

// The file of the calling thread, because a network namespace belongs to a thread.
listening_names::listening_names(std::string_view beginning, name_owner owner) noexcept
    : beginning_{beginning},
      // Accepted sockets have their listener's name, but not the flag.
      mark_{owner == name_owner::listener ? " 00010000 " : " 0002 "},
      list_{std::fopen("/proc/thread-self/net/unix", "re")} {}

std::optional<std::string_view> listening_names::next() noexcept {
  constexpr std::string_view abstract = " @";
  while (list_ && std::fgets(line_, sizeof line_, list_.get()) != nullptr) {
    std::string_view line{line_};
    if (line.ends_with('\n')) line.remove_suffix(1);
    const std::size_t at = line.find(abstract);
    if (at == line.npos || line.find(mark_) > at) continue;
    line.remove_prefix(at + abstract.size());
    if (line.starts_with(beginning_)) return line;
  }
  return std::nullopt;
}

unique_fd local_socket() noexcept {
  return unique_fd{::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
}

unique_fd listen_at(const socket_name& name) noexcept {
  unique_fd listener = local_socket();
  if (!listener || (::bind(listener.get(), name.get(), name.length()) == 0 &&
                    ::listen(listener.get(), SOMAXCONN) == 0))
    return listener;
  const int error = errno;
  listener.reset();
  errno = error;
  return listener;
}

unique_fd connect_to(const socket_name& name) noexcept {
  unique_fd socket = local_socket();
  if (!socket || ::connect(socket.get(), name.get(), name.length()) == 0) return socket;
  const int error = errno;
  socket.reset();
  errno = error;
  return socket;
}

bool send_with_descriptor(int socket, const void* bytes, std::size_t count, int fd) noexcept {
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof fd)]{};
  iovec part{const_cast<void*>(bytes), count};
  msghdr packet{};
  packet.msg_iov = &part;
  packet.msg_iovlen = 1;
  packet.msg_control = control;
  packet.msg_controllen = sizeof control;
  cmsghdr* const rights = CMSG_FIRSTHDR(&packet);
  rights->cmsg_level = SOL_SOCKET;
  rights->cmsg_type = SCM_RIGHTS;
  rights->cmsg_len = CMSG_LEN(sizeof fd);
  std::memcpy(CMSG_DATA(rights), &fd, sizeof fd);
  return ::sendmsg(socket, &packet, MSG_DONTWAIT | MSG_NOSIGNAL) == static_cast<ssize_t>(count);
}

int receive_with_descriptor(int socket, void* bytes, std::size_t count,
                            unique_fd& passed) noexcept {
  // The buffer holds exactly one descriptor (CMSG_SPACE would hold two). The kernel closes further
  // descriptors and reports MSG_CTRUNC.
  alignas(cmsghdr) char control[CMSG_LEN(sizeof(int))];
  iovec part{bytes, count};
  msghdr packet{};
  packet.msg_iov = &part;
  packet.msg_iovlen = 1;
  packet.msg_control = control;
  packet.msg_controllen = sizeof control;
  const ssize_t got = ::recvmsg(socket, &packet, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (got < 0) return -1;
  for (cmsghdr* one = CMSG_FIRSTHDR(&packet); one != nullptr; one = CMSG_NXTHDR(&packet, one)) {
    if (one->cmsg_level != SOL_SOCKET || one->cmsg_type != SCM_RIGHTS) continue;
    int fd = -1;
    std::memcpy(&fd, CMSG_DATA(one), sizeof fd);
    passed.reset(fd);
  }
  const bool is_cut = (packet.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0;
  return got == static_cast<ssize_t>(count) && !is_cut ? 1 : 0;
}

bool make_random(std::uint64_t& bits) noexcept {
  return ::getrandom(&bits, sizeof bits, 0) == sizeof bits;
}

void read_any_uid() noexcept {
  const char* said = std::getenv("SOFTVERBS_ANY_UID");
  any_uid.store(said != nullptr && std::strcmp(said, "1") == 0, std::memory_order_relaxed);
}

bool accepts_user(uid_t user) noexcept {
  return user == ::geteuid() || any_uid.load(std::memory_order_relaxed);
}

bool owner_of(int socket, ucred& owner) noexcept {
  socklen_t length = sizeof owner;
  return ::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &owner, &length) == 0 &&
         accepts_user(owner.uid);
}

/// Pid 0 means that the owner is unknown, or lives in a PID namespace that is invisible here.
void warn_of_other_user(const ucred& owner) noexcept {
  if (owner.pid == 0) return;
  warn_once(hint::other_user,
            "softverbs: process %d belongs to user %u, and this one to user %u: set "
            "SOFTVERBS_ANY_UID=1 in both for them to talk\n",
            owner.pid, owner.uid, ::geteuid());
}

}  // namespace softverbs
