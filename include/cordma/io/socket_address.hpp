#pragma once

#include <cordma/detail/base/export.hpp>

#include <sys/socket.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace cordma {

/// An IPv4 or IPv6 address with a port, or a Unix socket's, as a value. Prints as `127.0.0.1:7471`,
/// `[::1]:7471`, `unix:/run/x`, `unix:@x` (abstract) or `unix:` (unnamed).
class CORDMA_EXPORT socket_address {
 public:
  /// Makes 0.0.0.0, port 0.
  socket_address() noexcept;
  /// Copies an address that the kernel filled in: AF_INET, AF_INET6, AF_UNIX.
  socket_address(const sockaddr* address, socklen_t size_bytes) noexcept;

  /// Returns all addresses of a host name, or the numeric one, the preferred first; never empty.
  /// The call asks the resolver (files, DNS) and **blocks the thread** meanwhile: use it for setup.
  /// \errors `error`.
  static std::vector<socket_address> resolve(const std::string& host, std::uint16_t port);
  static socket_address loopback(std::uint16_t port) noexcept;  ///< Returns 127.0.0.1.

  /// Makes a Unix socket's address from a path, or from "@name": an abstract one (unix(7)).
  /// \errors EINVAL: empty, too long, or with a NUL.
  static socket_address unix_path(std::string_view path);

  [[nodiscard]] std::uint16_t port() const noexcept;  ///< Returns 0 for a Unix socket.
  void set_port(std::uint16_t port) noexcept;
  [[nodiscard]] bool is_ipv6() const noexcept { return storage_.ss_family == AF_INET6; }
  [[nodiscard]] bool is_unix() const noexcept { return storage_.ss_family == AF_UNIX; }
  /// Returns true if only this host can be at the other end: 127.0.0.0/8, ::1, a Unix socket.
  [[nodiscard]] bool is_loopback() const noexcept;
  [[nodiscard]] std::string to_string() const;

  [[nodiscard]] const sockaddr* data() const noexcept {
    return reinterpret_cast<const sockaddr*>(&storage_);
  }
  [[nodiscard]] socklen_t size_bytes() const noexcept { return size_bytes_; }
  [[nodiscard]] bool operator==(const socket_address& other) const noexcept;

 private:
  sockaddr_storage storage_{};
  socklen_t size_bytes_;
};

}  // namespace cordma
