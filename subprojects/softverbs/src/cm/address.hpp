#pragma once

#include "cm/kernel_abi.hpp"
#include "cm/message.hpp"

#include <infiniband/verbs.h>
#include <sys/socket.h>

#include <cstddef>
#include <cstdint>

namespace softverbs::cm {

/// A socket address of AF_INET, AF_INET6 or AF_IB, or none (family 0).
class address {
 public:
  address() noexcept = default;
  /// Copies as many bytes as the family in them has; none if the family is another one, or does not
  /// fit in `bytes`.
  address(const void* raw, std::size_t bytes) noexcept;
  /// The address of an endpoint: AF_INET if it is mapped.
  explicit address(const endpoint& from) noexcept;
  static address wildcard(int family) noexcept;
  static address loopback(int family) noexcept;

  [[nodiscard]] int family() const noexcept { return raw_.ss_family; }
  [[nodiscard]] std::size_t bytes() const noexcept;  ///< 0: none
  [[nodiscard]] const sockaddr_storage& raw() const noexcept { return raw_; }
  [[nodiscard]] std::uint16_t port() const noexcept;  ///< in host order
  void set_port(std::uint16_t port) noexcept;
  [[nodiscard]] bool is_wildcard() const noexcept;
  [[nodiscard]] bool is_loopback() const noexcept;
  [[nodiscard]] bool is_link_local() const noexcept;  ///< IPv6 only
  [[nodiscard]] std::uint32_t scope() const noexcept;

  [[nodiscard]] const sockaddr_ib& ib() const noexcept;
  [[nodiscard]] sockaddr_ib& ib() noexcept;
  /// The transport's form of the address. Not for AF_IB.
  [[nodiscard]] endpoint at() const noexcept;
  /// The RoCE GID of the address: the IPv6 address, or the mapped IPv4 address; zero for AF_IB's
  /// wildcard.
  [[nodiscard]] ibv_gid gid() const noexcept;

 private:
  [[nodiscard]] const sockaddr_in& v4() const noexcept;
  [[nodiscard]] const sockaddr_in6& v6() const noexcept;

  sockaddr_storage raw_{};
};

/// Chooses the source of a connection from `from`, which may be a wildcard, as the kernel routes.
/// `source` gets the address, with the port of `from`. errno value.
[[nodiscard]] int choose_source(const address& from, const address& to, address& source) noexcept;

/// True if the caller may bind ports below 1024.
[[nodiscard]] bool may_bind_low_ports() noexcept;

}  // namespace softverbs::cm
