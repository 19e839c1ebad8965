#include "link/local_listener.hpp"

#include "link/hints.hpp"

#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cinttypes>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <string_view>

namespace softverbs {

namespace {

constexpr int socket_type = SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK;

/// An abstract name: the first byte is zero, and the kernel drops the name with its last socket.
struct socket_name {
  sockaddr_un address{};
  socklen_t length = 0;

  explicit socket_name(std::uint16_t slot) noexcept {
    set(std::snprintf(address.sun_path + 1, sizeof address.sun_path - 1, "softverbs.%u",
                      unsigned{slot}));
  }
  socket_name(std::uint16_t slot, std::uint64_t random) noexcept {
    set(std::snprintf(address.sun_path + 1, sizeof address.sun_path - 1, "softverbs.%u.%016" PRIx64,
                      unsigned{slot}, random));
  }
  explicit socket_name(std::string_view text) noexcept {
    text = text.substr(0, sizeof address.sun_path - 1);
    set(static_cast<int>(text.copy(address.sun_path + 1, text.size())));
  }
  [[nodiscard]] const sockaddr* get() const noexcept {
    return reinterpret_cast<const sockaddr*>(&address);
  }
  [[nodiscard]] bool operator==(const socket_name& other) const noexcept {
    return length == other.length && std::memcmp(&address, &other.address, length) == 0;
  }

 private:
  void set(int bytes) noexcept {
    address.sun_family = AF_UNIX;
    length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 +
                                    static_cast<std::size_t>(bytes));
  }
};

/// Calls `match` for each name that may be a listener of `slot`, until it returns true. Any user
/// may have bound any of these names.
template <class Match>
bool any_name(std::uint16_t slot, Match match) noexcept {
  if (match(socket_name{slot})) return true;
  // The file of the calling thread, because a network namespace belongs to a thread.
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> all{
      std::fopen("/proc/thread-self/net/unix", "re"), [](std::FILE* f) { return std::fclose(f); }};
  if (!all) return false;
  constexpr const char* listens = " 00010000 ";  // Accepted sockets have the name, too.
  char start[32];
  std::snprintf(start, sizeof start, " @softverbs.%u.", unsigned{slot});
  char line[256];
  while (std::fgets(line, sizeof line, all.get()) != nullptr) {
    const char* found = std::strstr(line, start);
    if (found == nullptr || std::strstr(line, listens) == nullptr) continue;
    std::string_view name{found +
                          2};  // Behind the blank and the `@` that stands for the zero byte.
    if (name.ends_with('\n')) name.remove_suffix(1);
    if (match(socket_name{name})) return true;
  }
  return false;
}

/// SOFTVERBS_ANY_UID when our listener opened: another thread may change the environment later.
constinit std::atomic<bool> any_uid{false};

/// Reads the credentials of the peer. False: its uid is not accepted.
bool owner_of(int socket, ucred& owner) noexcept {
  socklen_t length = sizeof owner;
  return ::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &owner, &length) == 0 &&
         (owner.uid == ::geteuid() || any_uid.load(std::memory_order_relaxed));
}

/// Pid 0 means that the owner is unknown, or lives in a PID namespace that is invisible here.
void warn_of_other_user(const ucred& owner) noexcept {
  if (owner.pid == 0) return;
  warn_once(hint::other_user,
            "softverbs: process %d belongs to user %u, and this one to user %u: set "
            "SOFTVERBS_ANY_UID=1 in both for them to talk\n",
            owner.pid, owner.uid, ::geteuid());
}

unique_fd connect_to(const socket_name& name) noexcept {
  unique_fd socket{::socket(AF_UNIX, socket_type, 0)};
  if (socket && ::connect(socket.get(), name.get(), name.length) != 0) socket.reset();
  return socket;
}

/// Connects to the listener of `slot` whose owner satisfies `is_right`. Null: there is none;
/// `owner` is then a process of another user that has one, if any.
template <class Right>
unique_fd connect_to_owner(std::uint16_t slot, ucred& owner, Right is_right) noexcept {
  unique_fd socket;
  any_name(slot, [&](const socket_name& name) {
    socket = connect_to(name);
    if (socket && owner_of(socket.get(), owner) && is_right(owner)) return true;
    socket.reset();
    return false;
  });
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

unique_fd open_local_listener(std::uint16_t slot, listener_name kind) noexcept {
  const char* said = std::getenv("SOFTVERBS_ANY_UID");
  any_uid.store(said != nullptr && std::strcmp(said, "1") == 0, std::memory_order_relaxed);
  std::uint64_t random = 0;
  if (kind == listener_name::random && ::getrandom(&random, sizeof random, 0) != sizeof random)
    return unique_fd{};
  const socket_name own =
      kind == listener_name::random ? socket_name{slot, random} : socket_name{slot};
  unique_fd listener{::socket(AF_UNIX, socket_type, 0)};
  if (!listener) return listener;
  if (::bind(listener.get(), own.get(), own.length) != 0 ||
      ::listen(listener.get(), SOMAXCONN) != 0) {
    const int error = errno;
    listener.reset();
    errno = error;
    return listener;
  }
  bool is_found = false;  // A random name helps only where other processes find it.
  const bool is_taken = any_name(slot, [&](const socket_name& name) {
    if (name == own) {
      is_found = true;
      return false;
    }
    ucred owner{};
    const unique_fd other = connect_to(name);
    return other && owner_of(other.get(), owner);
  });
  if (is_found && !is_taken) return listener;
  listener.reset();
  errno = EADDRINUSE;  // Two processes that claim a slot at once see each other, and both give up.
  return listener;
}

std::string holders_of_slots() {
  struct holder {
    unsigned count = 0;
    pid_t process = 0;
  };
  std::map<uid_t, holder> holders;
  for (std::uint16_t slot = 0; slot < process_slots; ++slot) {
    ucred owner{};
    socklen_t length = sizeof owner;
    const unique_fd listener = connect_to(socket_name{slot});
    if (!listener || ::getsockopt(listener.get(), SOL_SOCKET, SO_PEERCRED, &owner, &length) != 0)
      continue;
    holder& one = holders[owner.uid];
    ++one.count;
    one.process = owner.pid;
  }
  std::string text;
  for (const auto& [user, is] : holders)
    text += (text.empty() ? "" : ", ") + std::to_string(is.count) + " by user " +
            std::to_string(user) + " (process " + std::to_string(is.process) +
            (is.count > 1 ? " and others)" : ")");
  return text;
}

bool receive_hello(int socket, hello& words, unique_fd& memory) noexcept {
  // The buffer holds exactly one descriptor (CMSG_SPACE would hold two). The kernel closes further
  // descriptors and reports MSG_CTRUNC.
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
         (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) == 0 && memory && words.is_valid() &&
         ring_memory::is_valid(memory.get());
}

bool is_owner_of(int socket, std::uint16_t slot) noexcept {
  ucred peer{}, owner{};
  if (!owner_of(socket, peer)) {
    warn_of_other_user(peer);
    return false;
  }
  // A process of an invisible PID namespace has pid 0 in both results: then the uid decides.
  const auto is_peer = [&](const ucred& one) { return one.pid == peer.pid; };
  return static_cast<bool>(connect_to_owner(slot, owner, is_peer));
}

bool connect_local(std::uint16_t slot, std::uint16_t own_slot, unique_fd& socket,
                   unique_fd& memory) noexcept {
  ucred owner{};
  socket = connect_to_owner(slot, owner, [](const ucred&) { return true; });
  if (!socket) {
    warn_of_other_user(owner);
    return false;
  }
  memory.reset(ring_memory::create_file());
  hello words;
  words.slot = own_slot;
  return memory && send_hello(socket.get(), words, memory.get());
}

}  // namespace softverbs
