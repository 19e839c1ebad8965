#include "census.hpp"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include <algorithm>
#include <cstddef>
#include <cstring>

namespace {

const std::string name = "@softverbs.census." + std::to_string(::getpid());

sockaddr_un address() {
  sockaddr_un named{};
  named.sun_family = AF_UNIX;
  name.copy(named.sun_path, name.size());
  named.sun_path[0] = '\0';
  return named;
}
const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size());

bool is_orphan() {
  const auto found = census::orphans();
  return std::any_of(found.begin(), found.end(),
                     [](const std::string& one) { return one.starts_with(name + ' '); });
}

/// Leaves the descriptor to nobody: the message that carries it is never received.
void send_away(int by, int fd) {
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof fd)]{};
  char byte = 0;
  iovec part{&byte, 1};
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
  REQUIRE(::sendmsg(by, &packet, 0) == 1);
  REQUIRE(::close(fd) == 0);
}

}  // namespace

TEST_CASE("a name that no process owns is an orphan, and a connection in a backlog is none",
          "[campaign]") {
  if (::geteuid() != 0) return;  // Only root sees everybody's descriptors.
  const sockaddr_un named = address();
  const auto* const at = reinterpret_cast<const sockaddr*>(&named);
  const int listener = ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  REQUIRE(::bind(listener, at, length) == 0);
  REQUIRE(::listen(listener, 1) == 0);
  const int client = ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  REQUIRE(::connect(client, at, length) == 0);
  CHECK_FALSE(is_orphan());
  int pair[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, pair) == 0);
  send_away(pair[0], listener);
  CHECK(is_orphan());
  for (const int one : {pair[0], pair[1], client}) ::close(one);
  CHECK_FALSE(is_orphan());
}
