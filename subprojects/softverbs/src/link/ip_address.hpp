#pragma once

#include <netinet/in.h>

#include <cstdint>
#include <cstring>

// Addresses of both families as 16 bytes: an IPv4 address is mapped (RFC 4291, 2.5.5.2). A GID of
// RoCE has the same 16 bytes, so the functions take either.

namespace softverbs {

inline constexpr std::uint8_t mapped_prefix[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

/// The address, all zero, by which addresses of nodes name the host itself.
inline constexpr in6_addr this_host{};

/// 16 bytes: an in6_addr, an ibv_gid, or an array.
template <class Address>
concept ip_address = sizeof(Address) == sizeof(in6_addr);

template <ip_address Address>
[[nodiscard]] bool is_mapped(const Address& address) noexcept {
  return std::memcmp(&address, mapped_prefix, sizeof mapped_prefix) == 0;
}

template <ip_address Address>
[[nodiscard]] bool same(const Address& a, const Address& b) noexcept {
  return std::memcmp(&a, &b, sizeof a) == 0;
}

/// The IPv4 address of a mapped address.
template <ip_address Address>
[[nodiscard]] in_addr ip4_of(const Address& address) noexcept {
  in_addr v4;
  std::memcpy(&v4, reinterpret_cast<const std::uint8_t*>(&address) + sizeof mapped_prefix,
              sizeof v4);
  return v4;
}

template <ip_address Address = in6_addr>
[[nodiscard]] Address mapped(const in_addr& v4) noexcept {
  Address address{};
  auto* const bytes = reinterpret_cast<std::uint8_t*>(&address);
  std::memcpy(bytes, mapped_prefix, sizeof mapped_prefix);
  std::memcpy(bytes + sizeof mapped_prefix, &v4, sizeof v4);
  return address;
}

template <ip_address Address>
[[nodiscard]] bool is_loopback(const Address& address) noexcept {
  if (is_mapped(address)) return reinterpret_cast<const std::uint8_t*>(&address)[12] == 127;
  return std::memcmp(&address, &in6addr_loopback, sizeof address) == 0;
}

}  // namespace softverbs
