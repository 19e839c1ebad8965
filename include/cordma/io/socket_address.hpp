#pragma once

#include <cordma/detail/base/export.hpp>

#include <sys/socket.h>

#include <cstdint>
#include <string>
#include <vector>

namespace cordma {

/// An IPv4 or IPv6 address with a port, as a value. Prints as `127.0.0.1:7471` or `[::1]:7471`.
class CORDMA_EXPORT socket_address {
 public:
  /// Makes 0.0.0.0, port 0.
  socket_address() noexcept;
  /// Copies an address that the kernel filled in: AF_INET or AF_INET6.
  socket_address(const sockaddr* address, socklen_t size_bytes) noexcept;

  /// Returns all addresses of a host name, or the numeric one, the preferred first; never empty.
  /// The call asks the resolver (files, DNS) and **blocks the thread** meanwhile: use it for setup.
  /// \errors `error`.
  static std::vector<socket_address> resolve(const std::string& host, std::uint16_t port);
  static socket_address loopback(std::uint16_t port) noexcept;  ///< Returns 127.0.0.1.

  [[nodiscard]] std::uint16_t port() const noexcept;
  void set_port(std::uint16_t port) noexcept;
  [[nodiscard]] bool is_ipv6() const noexcept { return storage_.ss_family == AF_INET6; }
  [[nodiscard]] std::string to_string() const;

  [[nodiscard]] const sockaddr* data() const noexcept {
    return reinterpret_cast<const sockaddr*>(&storage_);
  }
  [[nodiscard]] socklen_t size_bytes() const noexcept;
  [[nodiscard]] bool operator==(const socket_address& other) const noexcept;

 private:
  sockaddr_storage storage_{};
};

}  // namespace cordma
