#pragma once

#include <cordma/connection/connection.hpp>

#include <sys/socket.h>
#include <unistd.h>

#include <stdexcept>

namespace cordma::test {

/// The descriptor of a connection's bootstrap socket, which has no accessor: found by its
/// addresses.
inline int socket_of(const connection& conn) {
  const auto has = [](int fd, int (*ask)(int, sockaddr*, socklen_t*),
                      const socket_address& wanted) {
    sockaddr_storage storage{};
    socklen_t size_bytes = sizeof storage;
    auto* const address = reinterpret_cast<sockaddr*>(&storage);
    // The device may have sockets of other families.
    return ask(fd, address, &size_bytes) == 0 && storage.ss_family == wanted.data()->sa_family &&
           socket_address{address, size_bytes} == wanted;
  };
  const int descriptors = int(::sysconf(_SC_OPEN_MAX));
  for (int fd = 3; fd < descriptors; ++fd) {
    if (has(fd, &::getsockname, conn.local()) && has(fd, &::getpeername, conn.peer())) return fd;
  }
  throw std::runtime_error{"no descriptor has the connection's addresses"};
}

}  // namespace cordma::test
