#include <cordma/io/socket_address.hpp>

#include "address_text.hpp"

#include <cordma/base/error.hpp>
#include <cordma/detail/base/assert.hpp>

#include <arpa/inet.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/un.h>

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <memory>

namespace cordma {
namespace {

using address_list =
    std::unique_ptr<addrinfo, decltype([](addrinfo* list) { ::freeaddrinfo(list); })>;

/// Returns `text` in quotation marks; a NUL would end an error's text.
std::string quoted(std::string_view text) {
  std::string made{"\""};
  for (const char c : text.substr(0, 80)) c == '\0' ? made += "\\0" : made += c;
  return made += '"';
}

int resolve_host(const std::string& host, address_list& found) {
  addrinfo hints{};
  hints.ai_flags = AI_ADDRCONFIG;
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  const int outcome = ::getaddrinfo(host.c_str(), nullptr, &hints, &list);
  found.reset(outcome == 0 ? list : nullptr);
  return outcome;
}

[[noreturn]] void throw_unresolved(std::error_code code, std::string_view host,
                                   std::string_view why) {
  const std::string detail = quoted(host).append(": ").append(why);
  throw error{{.code = code, .call = "getaddrinfo", .detail = std::string_view{detail}}};
}

// getaddrinfo(3) has error codes of its own.
std::error_code code_of_lookup(int outcome) noexcept {
  switch (outcome) {
    case EAI_SYSTEM: return {errno, std::system_category()};
    case EAI_AGAIN: return {EAGAIN, std::system_category()};
    case EAI_MEMORY: return {ENOMEM, std::system_category()};
    default: return errc::unknown_host;
  }
}

/// Returns true for a link-local IPv6 address without a scope: several interfaces may have such a
/// network.
bool lacks_interface(const sockaddr* address) noexcept {
  if (address->sa_family != AF_INET6) return false;
  const auto& in = *reinterpret_cast<const sockaddr_in6*>(address);
  return IN6_IS_ADDR_LINKLOCAL(&in.sin6_addr) && in.sin6_scope_id == 0;
}

}  // namespace

socket_address::socket_address() noexcept : size_bytes_{sizeof(sockaddr_in)} {
  storage_.ss_family = AF_INET;
}

socket_address::socket_address(const sockaddr* address, socklen_t size_bytes) noexcept
    : size_bytes_{size_bytes} {
  CORDMA_ASSERT(size_bytes <= sizeof storage_, "larger than any socket address");
  std::memcpy(&storage_, address, size_bytes);
  CORDMA_ASSERT(storage_.ss_family == AF_INET || is_ipv6() || is_unix(),
                "neither IPv4 nor IPv6 nor a Unix socket's");
}

socket_address socket_address::unix_path(std::string_view path) {
  sockaddr_un un{};
  un.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof un.sun_path || path.find('\0') != path.npos) {
    const std::string detail = "a Unix socket's path " + quoted(path) + " of " +
                               std::to_string(path.size()) + " bytes: 1 to " +
                               std::to_string(sizeof un.sun_path - 1) + " bytes without a NUL";
    throw error{errno_failure(EINVAL, "unix", {}, std::string_view{detail})};
  }
  path.copy(un.sun_path, path.size());
  // An abstract address begins with a NUL and ends at its length (unix(7)).
  const bool is_abstract = path.front() == '@';
  if (is_abstract) un.sun_path[0] = '\0';
  const std::size_t size_bytes =
      offsetof(sockaddr_un, sun_path) + path.size() + (is_abstract ? 0 : 1);
  return {reinterpret_cast<const sockaddr*>(&un), static_cast<socklen_t>(size_bytes)};
}

std::vector<socket_address> socket_address::resolve(const std::string& host, std::uint16_t port) {
  const std::error_code invalid{EINVAL, std::system_category()};
  if (host.empty()) throw_unresolved(invalid, host, "no host is given; a name or an address");
  if (host.find('\0') != host.npos) throw_unresolved(invalid, host, "a host has no NUL in it");
  address_list found;
  if (const int outcome = resolve_host(host, found); outcome != 0) {
    const std::string said = ::gai_strerror(outcome);
    throw_unresolved(code_of_lookup(outcome), host,
                     said + "; check the name, or give a numeric address");
  }
  std::vector<socket_address> addresses;
  for (const addrinfo* each = found.get(); each != nullptr; each = each->ai_next) {
    if (!lacks_interface(each->ai_addr))
      addresses.emplace_back(each->ai_addr, each->ai_addrlen).set_port(port);
  }
  if (addresses.empty()) {
    throw_unresolved(invalid, host, "a link-local address names its interface: fe80::1%eth0");
  }
  return addresses;
}

socket_address socket_address::loopback(std::uint16_t port) noexcept {
  sockaddr_in in{};
  in.sin_family = AF_INET;
  in.sin_port = htons(port);
  in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return {reinterpret_cast<const sockaddr*>(&in), sizeof in};
}

// The port lies at the same place for both families (RFC 3493, section 3.10).
std::uint16_t socket_address::port() const noexcept {
  if (is_unix()) return 0;
  static_assert(offsetof(sockaddr_in, sin_port) == offsetof(sockaddr_in6, sin6_port));
  return ntohs(reinterpret_cast<const sockaddr_in*>(&storage_)->sin_port);
}

void socket_address::set_port(std::uint16_t port) noexcept {
  if (is_unix()) return;
  reinterpret_cast<sockaddr_in*>(&storage_)->sin_port = htons(port);
}

bool socket_address::is_loopback() const noexcept {
  if (is_unix()) return true;
  if (!is_ipv6()) {
    const auto& in = *reinterpret_cast<const sockaddr_in*>(&storage_);
    return ntohl(in.sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
  }
  const in6_addr& ip = reinterpret_cast<const sockaddr_in6*>(&storage_)->sin6_addr;
  return IN6_IS_ADDR_LOOPBACK(&ip) ||
         (IN6_IS_ADDR_V4MAPPED(&ip) && ip.s6_addr[12] == IN_LOOPBACKNET);
}

fixed_text<128> detail::address_text(const socket_address& address) noexcept {
  char text[160];  // "[" + fe80::1%eth0 + "]:65535", or "unix:@" and a path.
  if (address.is_unix()) {
    const auto* const path = reinterpret_cast<const sockaddr_un*>(address.data())->sun_path;
    std::size_t bytes = address.size_bytes() - offsetof(sockaddr_un, sun_path);
    if (bytes == 0) return "unix:";  // Unnamed: a client's, or a socketpair's.
    const bool is_abstract = path[0] == '\0';
    if (!is_abstract) bytes = ::strnlen(path, bytes);
    std::string_view{"unix:"}.copy(text, 5);
    std::memcpy(text + 5, path, bytes);
    if (is_abstract) text[5] = '@';
    return std::string_view{text, 5 + bytes};
  }
  char host[INET6_ADDRSTRLEN + 1 + IF_NAMESIZE] = "?";
  ::getnameinfo(address.data(), address.size_bytes(), host, sizeof host, nullptr, 0,
                NI_NUMERICHOST);
  std::snprintf(text, sizeof text, address.is_ipv6() ? "[%s]:%u" : "%s:%u", host,
                unsigned{address.port()});
  return text;
}

std::string socket_address::to_string() const {
  return std::string{detail::address_text(*this).view()};
}

bool socket_address::operator==(const socket_address& other) const noexcept {
  return size_bytes() == other.size_bytes() &&
         std::memcmp(&storage_, &other.storage_, size_bytes()) == 0;
}

}  // namespace cordma
