#include "multicast/group_network.hpp"

#include "link/hints.hpp"
#include "link/ip_address.hpp"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>

namespace softverbs {

namespace {

/// 239.255.118.115 of the site-local block, and ff12::7376, transient and link-local.
constexpr in6_addr ip4_group{{{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 239, 255, 118, 115}}};
constexpr in6_addr ip6_group{{{0xff, 0x12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x73, 0x76}}};

/// True for `::` and for the mapped 0.0.0.0.
bool is_any(const in6_addr& address) noexcept {
  return IN6_IS_ADDR_UNSPECIFIED(&address) ||
         (is_mapped(address) && ip4_of(address).s_addr == INADDR_ANY);
}

bool is_group(const in6_addr& address) noexcept {
  return IN6_IS_ADDR_MULTICAST(&address) ||
         (is_mapped(address) && IN_MULTICAST(ntohl(ip4_of(address).s_addr)));
}

bool set_option(int socket, int level, int option, int value) noexcept {
  return ::setsockopt(socket, level, option, &value, sizeof value) == 0;
}

/// The address of an interface that can carry announcements; false: it cannot.
bool read_interface(const ifaddrs& one, in6_addr& address) noexcept {
  constexpr unsigned wanted = IFF_UP | IFF_MULTICAST;
  if (one.ifa_addr == nullptr || (one.ifa_flags & wanted) != wanted) return false;
  if (one.ifa_addr->sa_family == AF_INET)
    address = mapped(reinterpret_cast<const sockaddr_in*>(one.ifa_addr)->sin_addr);
  else if (one.ifa_addr->sa_family == AF_INET6)
    address = reinterpret_cast<const sockaddr_in6*>(one.ifa_addr)->sin6_addr;
  else
    return false;
  return !is_loopback(address);
}

/// A datagram's name and control data, for one family.
struct envelope {
  sockaddr_storage name{};
  socklen_t name_bytes = 0;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(in6_pktinfo))]{};
  std::size_t control_bytes = 0;

  template <class Info>
  void control_is(int level, int type, const Info& info) noexcept {
    auto* const head = reinterpret_cast<cmsghdr*>(control);
    head->cmsg_level = level;
    head->cmsg_type = type;
    head->cmsg_len = CMSG_LEN(sizeof info);
    std::memcpy(CMSG_DATA(head), &info, sizeof info);
    control_bytes = CMSG_SPACE(sizeof info);
  }
};

void address_ip4(envelope& to, const in6_addr& address, std::uint16_t port, const in6_addr& from,
                 unsigned interface) noexcept {
  auto& name = reinterpret_cast<sockaddr_in&>(to.name);
  name.sin_family = AF_INET;
  name.sin_port = htons(port);
  name.sin_addr = ip4_of(address);
  to.name_bytes = sizeof name;
  to.control_is(IPPROTO_IP, IP_PKTINFO,
                in_pktinfo{static_cast<int>(interface), ip4_of(from), in_addr{}});
}

void address_ip6(envelope& to, const in6_addr& address, std::uint16_t port, const in6_addr& from,
                 unsigned interface) noexcept {
  auto& name = reinterpret_cast<sockaddr_in6&>(to.name);
  name.sin6_family = AF_INET6;
  name.sin6_port = htons(port);
  name.sin6_addr = address;
  name.sin6_scope_id = IN6_IS_ADDR_MULTICAST(&address) ? interface : 0;
  to.name_bytes = sizeof name;
  to.control_is(IPPROTO_IPV6, IPV6_PKTINFO, in6_pktinfo{from, interface});
}

}  // namespace

bool group_network::open(const tcp_settings& tcp, const char* peers) {
  if (!tcp.listen_set || is_loopback(tcp.listen)) return true;
  is_ip4_ = is_mapped(tcp.listen);
  port_ = static_cast<std::uint16_t>(tcp.port + announcement_port);
  listen_ = tcp.listen;
  has_peers_ = peers != nullptr && *peers != '\0';
  routes_.clear();
  if (has_peers_)
    read_peers(peers, tcp.listen);
  else
    find_interfaces(tcp.listen);
  return bind(port_);
}

void group_network::close() noexcept { socket_.reset(); }

/// Joins the IP group on each interface, but only there: all processes of this host get a copy of
/// what comes by IP multicast.
bool group_network::bind(std::uint16_t port) noexcept {
  sockaddr_storage name{};
  name.ss_family = is_ip4_ ? AF_INET : AF_INET6;
  reinterpret_cast<sockaddr_in&>(name).sin_port = htons(port);  // sin6_port has the same place.
  unique_fd opened{::socket(name.ss_family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
  const int fd = opened.get();
  if (!opened || !set_option(fd, SOL_SOCKET, SO_REUSEADDR, 1)) return false;
  const bool good = is_ip4_ ? set_option(fd, IPPROTO_IP, IP_MULTICAST_LOOP, 0) &&
                                  set_option(fd, IPPROTO_IP, IP_MULTICAST_ALL, 0) &&
                                  set_option(fd, IPPROTO_IP, IP_PKTINFO, 1)
                            : set_option(fd, IPPROTO_IPV6, IPV6_V6ONLY, 1) &&
                                  set_option(fd, IPPROTO_IPV6, IPV6_MULTICAST_LOOP, 0) &&
                                  set_option(fd, IPPROTO_IPV6, IPV6_RECVPKTINFO, 1);
  const socklen_t bytes = is_ip4_ ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  if (!good || ::bind(fd, reinterpret_cast<const sockaddr*>(&name), bytes) != 0) return false;
  socket_ = std::move(opened);
  std::erase_if(routes_, [this](const route& one) { return one.interface != 0 && !join(one); });
  return true;
}

bool group_network::join(const route& on) noexcept {
  if (is_ip4_) {
    const ip_mreqn where{ip4_of(on.to), ip4_of(on.from), static_cast<int>(on.interface)};
    return ::setsockopt(socket_.get(), IPPROTO_IP, IP_ADD_MEMBERSHIP, &where, sizeof where) == 0;
  }
  const ipv6_mreq where{on.to, on.interface};
  return ::setsockopt(socket_.get(), IPPROTO_IPV6, IPV6_JOIN_GROUP, &where, sizeof where) == 0;
}

void group_network::find_interfaces(const in6_addr& listen) {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return;
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner{list, &::freeifaddrs};
  for (const ifaddrs* one = list; one != nullptr && routes_.size() < announced_routes_max;
       one = one->ifa_next) {
    in6_addr address{};
    if (!read_interface(*one, address) || is_mapped(address) != is_ip4_) continue;
    // Other hosts connect to the source of an announcement, which must name the host everywhere.
    if (is_any(listen) ? IN6_IS_ADDR_LINKLOCAL(&address) : !same(address, listen)) continue;
    routes_.push_back({is_ip4_ ? ip4_group : ip6_group, address, ::if_nametoindex(one->ifa_name)});
  }
}

void group_network::read_peers(const char* list, const in6_addr& listen) {
  std::string_view rest{list};
  while (!rest.empty() && routes_.size() < announced_routes_max) {
    const std::size_t end = rest.find(',');
    const std::string word{rest.substr(0, end)};
    rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
    in_addr v4{};
    in6_addr host{};
    if (::inet_pton(AF_INET, word.c_str(), &v4) == 1)
      host = mapped(v4);
    else if (::inet_pton(AF_INET6, word.c_str(), &host) != 1)
      host = {};
    if (is_mapped(host) == is_ip4_ && !is_any(host))
      routes_.push_back({host, is_any(listen) ? in6_addr{} : listen, 0});
    else
      warn_once(hint::bad_peer,
                "softverbs: SOFTVERBS_PEERS: '%s' is no address of the kind of SOFTVERBS_LISTEN\n",
                word.c_str());
  }
}

void group_network::send(std::span<const std::byte> datagram) noexcept {
  for (const route& one : routes_) {
    envelope to;
    if (is_ip4_)
      address_ip4(to, one.to, port_, one.from, one.interface);
    else
      address_ip6(to, one.to, port_, one.from, one.interface);
    iovec part{const_cast<std::byte*>(datagram.data()), datagram.size()};
    msghdr message{};
    message.msg_name = &to.name;
    message.msg_namelen = to.name_bytes;
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = to.control;
    message.msg_controllen = to.control_bytes;
    // A later announcement replaces a datagram that is lost here.
    (void)::sendmsg(socket_.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
  }
}

bool group_network::hears(const in6_addr& host) const noexcept {
  return !has_peers_ || std::any_of(routes_.begin(), routes_.end(),
                                    [&](const route& one) { return same(one.to, host); });
}

std::optional<group_network::received> group_network::receive(std::span<std::byte> room) noexcept {
  sockaddr_storage name{};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(in6_pktinfo))];
  iovec part{room.data(), room.size()};
  msghdr message{};
  message.msg_name = &name;
  message.msg_namelen = sizeof name;
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  const ssize_t bytes = ::recvmsg(socket_.get(), &message, MSG_DONTWAIT);
  if (bytes < 0) return std::nullopt;
  received result;
  in6_addr to{};
  result.from = is_ip4_ ? mapped(reinterpret_cast<const sockaddr_in&>(name).sin_addr)
                        : reinterpret_cast<const sockaddr_in6&>(name).sin6_addr;
  for (cmsghdr* one = CMSG_FIRSTHDR(&message); one != nullptr; one = CMSG_NXTHDR(&message, one)) {
    if (one->cmsg_level == IPPROTO_IP && one->cmsg_type == IP_PKTINFO) {
      in_pktinfo info;
      std::memcpy(&info, CMSG_DATA(one), sizeof info);
      to = mapped(info.ipi_addr);
    } else if (one->cmsg_level == IPPROTO_IPV6 && one->cmsg_type == IPV6_PKTINFO) {
      in6_pktinfo info;
      std::memcpy(&info, CMSG_DATA(one), sizeof info);
      to = info.ipi6_addr;
    }
  }
  result.unicast = !is_group(to);
  // The socket has all addresses of the host, because IP multicast does not come to one of them.
  const bool is_for_us = !result.unicast || is_any(listen_) || same(to, listen_);
  if (is_for_us && (message.msg_flags & MSG_TRUNC) == 0)
    result.bytes = static_cast<std::size_t>(bytes);
  return result;
}

}  // namespace softverbs
