#include <cordma/io/socket_address.hpp>

#include <cordma/base/error.hpp>
#include <cordma/detail/base/assert.hpp>

#include <arpa/inet.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>

#include <cerrno>
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

int look_up(const std::string& host, address_list& found) {
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

socket_address::socket_address() noexcept { storage_.ss_family = AF_INET; }

socket_address::socket_address(const sockaddr* address, socklen_t size_bytes) noexcept {
  CORDMA_ASSERT(size_bytes <= sizeof storage_, "larger than any socket address");
  std::memcpy(&storage_, address, size_bytes);
  CORDMA_ASSERT(storage_.ss_family == AF_INET || storage_.ss_family == AF_INET6,
                "neither IPv4 nor IPv6");
}

std::vector<socket_address> socket_address::resolve(const std::string& host, std::uint16_t port) {
  const std::error_code invalid{EINVAL, std::system_category()};
  if (host.empty()) throw_unresolved(invalid, host, "no host is given; a name or an address");
  if (host.find('\0') != host.npos) throw_unresolved(invalid, host, "a host has no NUL in it");
  address_list found;
  if (const int outcome = look_up(host, found); outcome != 0) {
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
  static_assert(offsetof(sockaddr_in, sin_port) == offsetof(sockaddr_in6, sin6_port));
  return ntohs(reinterpret_cast<const sockaddr_in*>(&storage_)->sin_port);
}

void socket_address::set_port(std::uint16_t port) noexcept {
  reinterpret_cast<sockaddr_in*>(&storage_)->sin_port = htons(port);
}

socklen_t socket_address::size_bytes() const noexcept {
  return is_ipv6() ? socklen_t{sizeof(sockaddr_in6)} : socklen_t{sizeof(sockaddr_in)};
}

std::string socket_address::to_string() const {
  char host[INET6_ADDRSTRLEN + 1 + IF_NAMESIZE] = "?";  // fe80::1%eth0
  ::getnameinfo(data(), size_bytes(), host, sizeof host, nullptr, 0, NI_NUMERICHOST);
  const std::string port_text = std::to_string(port());
  return is_ipv6() ? '[' + std::string{host} + "]:" + port_text
                   : std::string{host} + ':' + port_text;
}

bool socket_address::operator==(const socket_address& other) const noexcept {
  return size_bytes() == other.size_bytes() &&
         std::memcmp(&storage_, &other.storage_, size_bytes()) == 0;
}

}  // namespace cordma
