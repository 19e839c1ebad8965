#include "link/local_door.hpp"

#include "link/hints.hpp"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace softverbs {

namespace {

constexpr int door_type = SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK;

socklen_t name_of(std::uint16_t slot, sockaddr_un& name) noexcept {
  name = {};
  name.sun_family = AF_UNIX;
  // Abstract: the first byte is zero; the kernel forgets the name with its last socket.
  const int length =
      std::snprintf(name.sun_path + 1, sizeof name.sun_path - 1, "softverbs.%u", unsigned{slot});
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 +
                                static_cast<std::size_t>(length));
}

/// SOFTVERBS_ANY_UID, as it was when our door opened: another thread may change the environment.
constinit std::atomic<bool> any_uid{false};

/// Who bound, or opened, the other end.
bool owner_of(int socket, ucred& owner) noexcept {
  socklen_t length = sizeof owner;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &owner, &length) != 0) return false;
  if (owner.uid == ::geteuid() || any_uid.load(std::memory_order_relaxed)) return true;
  tell_once(hint::other_user,
            "softverbs: process %d belongs to user %u, and this one to user %u: set "
            "SOFTVERBS_ANY_UID=1 in both for them to talk\n",
            owner.pid, owner.uid, ::geteuid());
  return false;
}

unique_fd connect_to(std::uint16_t slot) noexcept {
  unique_fd socket{::socket(AF_UNIX, door_type, 0)};
  sockaddr_un name;
  const socklen_t length = name_of(slot, name);
  if (socket && ::connect(socket.get(), reinterpret_cast<sockaddr*>(&name), length) != 0)
    socket.reset();
  return socket;
}

bool send_hello(int socket, const hello& words, int memory) noexcept {
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))]{};
  iovec part{const_cast<hello*>(&words), sizeof words};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  cmsghdr* rights = CMSG_FIRSTHDR(&message);
  rights->cmsg_level = SOL_SOCKET;
  rights->cmsg_type = SCM_RIGHTS;
  rights->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(rights), &memory, sizeof memory);
  return ::sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL) ==
         static_cast<ssize_t>(sizeof words);
}

}  // namespace

unique_fd open_local_door(std::uint16_t slot) noexcept {
  const char* said = std::getenv("SOFTVERBS_ANY_UID");
  any_uid.store(said != nullptr && std::strcmp(said, "1") == 0, std::memory_order_relaxed);
  unique_fd door{::socket(AF_UNIX, door_type, 0)};
  sockaddr_un name;
  const socklen_t length = name_of(slot, name);
  if (!door) return door;
  if (::bind(door.get(), reinterpret_cast<sockaddr*>(&name), length) == 0 &&
      ::listen(door.get(), SOMAXCONN) == 0)
    return door;
  const int error = errno;
  door.reset();
  errno = error;
  return door;
}

bool receive_hello(int socket, hello& words, unique_fd& memory) noexcept {
  // Room for one descriptor exactly (CMSG_SPACE would be room for two): what does not fit, the
  // kernel closes, and says MSG_CTRUNC.
  alignas(cmsghdr) char control[CMSG_LEN(sizeof(int))];
  iovec part{&words, sizeof words};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  const ssize_t bytes = ::recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (bytes < 0) return false;
  for (cmsghdr* part_of = CMSG_FIRSTHDR(&message); part_of != nullptr;
       part_of = CMSG_NXTHDR(&message, part_of)) {
    if (part_of->cmsg_level != SOL_SOCKET || part_of->cmsg_type != SCM_RIGHTS) continue;
    int fd = -1;
    std::memcpy(&fd, CMSG_DATA(part_of), sizeof fd);
    memory.reset(fd);
  }
  return bytes == static_cast<ssize_t>(sizeof words) &&
         (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) == 0 && memory && words.sound() &&
         ring_memory::is_sound(memory.get());
}

bool is_owner_of(int socket, std::uint16_t slot) noexcept {
  ucred peer{};
  ucred owner{};
  const unique_fd door = connect_to(slot);
  // A process in a PID namespace that we do not see has pid 0 in both answers: the uid must do
  // then.
  return door && owner_of(socket, peer) && owner_of(door.get(), owner) && peer.pid == owner.pid;
}

bool knock_local(std::uint16_t slot, std::uint16_t own_slot, unique_fd& socket,
                 unique_fd& memory) noexcept {
  socket = connect_to(slot);
  ucred owner{};
  if (!socket || !owner_of(socket.get(), owner)) return false;
  memory.reset(ring_memory::create_file());
  hello words;
  words.slot = own_slot;
  return memory && send_hello(socket.get(), words, memory.get());
}

}  // namespace softverbs
