#include "host_calls.hpp"

#include "kernel_sockets.hpp"

#include "base/failures.hpp"

#include <cordma/base/unique_fd.hpp>
#include <cordma/io/reactor.hpp>

#include <ifaddrs.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <fstream>
#include <memory>

namespace cordma {
namespace detail {
namespace {

class host_of_kernel final : public host_calls {};

}  // namespace

host_calls& host_calls::of_kernel() noexcept {
  static constinit host_of_kernel kernel;
  return kernel;
}

socket_calls& host_calls::sockets() noexcept { return kernel_sockets(); }

std::vector<socket_address> host_calls::resolve(const std::string& host, std::uint16_t port) {
  return socket_address::resolve(host, port);
}

std::vector<socket_address> host_calls::own_addresses() {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) throw_errno(errno, "getifaddrs");
  const std::unique_ptr<ifaddrs, decltype([](ifaddrs* all) { ::freeifaddrs(all); })> owner{list};
  std::vector<socket_address> own;
  for (const ifaddrs* one = list; one != nullptr; one = one->ifa_next) {
    if (one->ifa_addr == nullptr) continue;
    if (one->ifa_addr->sa_family == AF_INET) own.emplace_back(one->ifa_addr, sizeof(sockaddr_in));
    if (one->ifa_addr->sa_family == AF_INET6) own.emplace_back(one->ifa_addr, sizeof(sockaddr_in6));
  }
  return own;
}

/// A socket of UDP learns the address without a packet.
socket_address host_calls::address_toward(const socket_address& to) {
  const unique_fd fd{::socket(to.data()->sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0)};
  sockaddr_storage own{};
  socklen_t size = sizeof own;
  if (!fd.is_open() || ::connect(fd.get(), to.data(), to.size_bytes()) != 0 ||
      ::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&own), &size) != 0)
    throw_errno(errno, "getsockname", to.to_string());
  socket_address address{reinterpret_cast<const sockaddr*>(&own), size};
  address.set_port(0);
  return address;
}

std::string host_calls::boot_id() {
  constexpr const char* path = "/proc/sys/kernel/random/boot_id";
  errno = 0;
  std::string id;
  if (std::ifstream{path} >> id) return id;
  throw_errno(errno != 0 ? errno : ENOENT, path);
}

}  // namespace detail

detail::host_calls& reactor::host() noexcept { return detail::host_calls::of_kernel(); }

}  // namespace cordma
