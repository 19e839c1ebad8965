#include "cm/address.hpp"

#include "link/ip_address.hpp"
#include "link/unique_fd.hpp"

#include <endian.h>
#include <linux/capability.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace softverbs::cm {

namespace {

constexpr std::uint16_t discard_port = 9;

std::size_t bytes_of(int family) noexcept {
  switch (family) {
    case AF_INET: return sizeof(sockaddr_in);
    case AF_INET6: return sizeof(sockaddr_in6);
    case family_ib: return sizeof(sockaddr_ib);
    default: return 0;
  }
}

}  // namespace

address::address(const void* raw, std::size_t bytes) noexcept {
  sa_family_t family = 0;
  if (bytes < sizeof family) return;
  std::memcpy(&family, raw, sizeof family);
  const std::size_t needed = bytes_of(family);
  if (needed == 0 || needed > bytes) return;
  std::memcpy(&raw_, raw, needed);
}

address::address(const endpoint& from) noexcept {
  if (is_mapped(from.address)) {
    auto& v4 = reinterpret_cast<sockaddr_in&>(raw_);
    v4.sin_family = AF_INET;
    v4.sin_addr = ip4_of(from.address);
  } else {
    auto& v6 = reinterpret_cast<sockaddr_in6&>(raw_);
    v6.sin6_family = AF_INET6;
    v6.sin6_addr = from.address;
    v6.sin6_scope_id = from.scope;
  }
  set_port(from.port);
}

address address::wildcard(int family) noexcept {
  address result;
  result.raw_.ss_family = static_cast<sa_family_t>(family);
  return result;
}

address address::loopback(int family) noexcept {
  address result = wildcard(family);
  if (family == AF_INET)
    reinterpret_cast<sockaddr_in&>(result.raw_).sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  else
    reinterpret_cast<sockaddr_in6&>(result.raw_).sin6_addr = in6addr_loopback;
  return result;
}

std::size_t address::bytes() const noexcept { return bytes_of(family()); }

const sockaddr_in& address::v4() const noexcept {
  return reinterpret_cast<const sockaddr_in&>(raw_);
}
const sockaddr_in6& address::v6() const noexcept {
  return reinterpret_cast<const sockaddr_in6&>(raw_);
}
const sockaddr_ib& address::ib() const noexcept {
  return reinterpret_cast<const sockaddr_ib&>(raw_);
}
sockaddr_ib& address::ib() noexcept { return reinterpret_cast<sockaddr_ib&>(raw_); }

std::uint16_t address::port() const noexcept {
  switch (family()) {
    case AF_INET: return ntohs(v4().sin_port);
    case AF_INET6: return ntohs(v6().sin6_port);
    case family_ib: return static_cast<std::uint16_t>(be64toh(ib().service & ib().service_mask));
    default: return 0;
  }
}

void address::set_port(std::uint16_t port) noexcept {
  if (family() == AF_INET)
    reinterpret_cast<sockaddr_in&>(raw_).sin_port = htons(port);
  else if (family() == AF_INET6)
    reinterpret_cast<sockaddr_in6&>(raw_).sin6_port = htons(port);
}

bool address::is_wildcard() const noexcept {
  static constexpr std::uint8_t zero[16]{};
  switch (family()) {
    case AF_INET: return (ntohl(v4().sin_addr.s_addr) >> 24) == 0;  // The kernel's "zeronet".
    case AF_INET6: return std::memcmp(&v6().sin6_addr, zero, sizeof zero) == 0;
    case family_ib: return std::memcmp(ib().address, zero, sizeof zero) == 0;
    default: return false;
  }
}

bool address::is_loopback() const noexcept {
  switch (family()) {
    case AF_INET: return (ntohl(v4().sin_addr.s_addr) >> 24) == 127;
    case AF_INET6: return std::memcmp(&v6().sin6_addr, &in6addr_loopback, sizeof(in6_addr)) == 0;
    case family_ib: return std::memcmp(ib().address, &in6addr_loopback, sizeof(in6_addr)) == 0;
    default: return false;
  }
}

bool address::is_link_local() const noexcept {
  return family() == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&v6().sin6_addr);
}

std::uint32_t address::scope() const noexcept {
  return family() == AF_INET6 ? v6().sin6_scope_id : 0;
}

endpoint address::at() const noexcept {
  endpoint result;
  const ibv_gid as_gid = gid();
  std::memcpy(&result.address, &as_gid, sizeof result.address);
  result.scope = scope();
  result.port = port();
  return result;
}

ibv_gid address::gid() const noexcept {
  if (family() == AF_INET) return mapped<ibv_gid>(v4().sin_addr);
  ibv_gid result{};
  if (family() == AF_INET6) std::memcpy(result.raw, &v6().sin6_addr, sizeof result.raw);
  return result;
}

int choose_source(const address& from, const address& to, address& source) noexcept {
  const unique_fd probe{::socket(to.family(), SOCK_DGRAM | SOCK_CLOEXEC, 0)};
  if (!probe) return errno;
  const auto as_sockaddr = [](const address& one) {
    return reinterpret_cast<const sockaddr*>(&one.raw());
  };
  address local = from;
  local.set_port(0);  // rdma_cm's ports are not UDP's.
  if (!from.is_wildcard() &&
      ::bind(probe.get(), as_sockaddr(local), static_cast<socklen_t>(local.bytes())) != 0)
    return errno;
  // Connecting a datagram socket sends nothing: it asks for a route. The port does not matter.
  address target = to;
  target.set_port(discard_port);
  if (::connect(probe.get(), as_sockaddr(target), static_cast<socklen_t>(target.bytes())) != 0)
    return errno;
  sockaddr_storage chosen{};
  socklen_t bytes = sizeof chosen;
  if (::getsockname(probe.get(), reinterpret_cast<sockaddr*>(&chosen), &bytes) != 0) return errno;
  source = address{&chosen, bytes};
  source.set_port(from.port());
  return 0;
}

bool may_bind_low_ports() noexcept {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3]{};
  if (::syscall(SYS_capget, &header, data) != 0) return false;
  return (data[0].effective >> CAP_NET_BIND_SERVICE & 1) != 0;
}

}  // namespace softverbs::cm
