#pragma once

#include "support/verbs_faults.hpp"

#include <cordma/io/executor.hpp>

#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <string>

namespace cordma::test {

/// Returns true for the socket that listens at the host's one port of softverbs' rdma_cm. A process
/// takes the port over when the one that had it ends.
inline bool is_port_of_host(const std::string& descriptor) {
  int fd = -1;
  std::from_chars(descriptor.data(), descriptor.data() + descriptor.size(), fd);
  int listens = 0;
  socklen_t flag_size = sizeof listens;
  if (::getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &flag_size) != 0 || listens == 0)
    return false;
  sockaddr_in address{};  // An IPv6 address has its port there, too.
  socklen_t size = sizeof address;
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) return false;
  if (address.sin_family != AF_INET && address.sin_family != AF_INET6) return false;
  constexpr unsigned long first_default = 47000, offset = 1024;
  const char* const first = std::getenv("SOFTVERBS_PORT");
  const unsigned long port = first != nullptr ? std::strtoul(first, nullptr, 10) : first_default;
  return ntohs(address.sin_port) == port + offset;
}

/// Gives a process's open descriptors, and its verbs objects (in programs that are linked with
/// verbs_faults.cpp), as text to compare: `CHECK(holdings() == before)`.
inline std::string holdings() {
  namespace fs = std::filesystem;
  // The iterator's own descriptor is counted each time.
  const auto fds = std::count_if(
      fs::directory_iterator{"/proc/self/fd"}, fs::directory_iterator{},
      [](const fs::directory_entry& e) { return !is_port_of_host(e.path().filename()); });
  return std::to_string(fds) + " descriptors, " +
         verbs_faults::to_string(verbs_faults::live_objects());
}

/// Gives the holdings once they are as expected, or after many turns. A peer that was refused
/// closes when the other side does.
inline std::string settled_holdings(cordma::executor& executor, const std::string& expected) {
  for (int i = 0; i < 5000 && holdings() != expected; ++i) {
    executor.run(executor.sleep_for(std::chrono::milliseconds{1}));
  }
  return holdings();
}

}  // namespace cordma::test
