#pragma once

#include "raw_peer.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstdint>
#include <system_error>
#include <vector>

namespace cordma::test {

/// Connects to a port of 127.0.0.1 from an address of this host, and says nothing.
inline raw_peer dial_from(cordma::executor& executor, const char* source, std::uint16_t port) {
  unique_fd fd{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  sockaddr_in from{};
  from.sin_family = AF_INET;
  ::inet_pton(AF_INET, source, &from.sin_addr);
  const socket_address to = socket_address::loopback(port);
  if (!fd.is_open() ||
      ::bind(fd.get(), reinterpret_cast<const sockaddr*>(&from), sizeof from) != 0 ||
      ::connect(fd.get(), to.data(), to.size_bytes()) != 0) {
    throw std::system_error{errno, std::system_category(), source};
  }
  return stream_socket{executor, std::move(fd)};
}

inline std::vector<raw_peer> silent_clients(cordma::executor& executor, const char* source,
                                            std::uint16_t port, int count) {
  std::vector<raw_peer> clients;
  for (int i = 0; i < count; ++i) clients.push_back(dial_from(executor, source, port));
  return clients;
}

}  // namespace cordma::test
