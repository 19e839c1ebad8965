#include "meeting_host.hpp"

#include "base/failures.hpp"
#include "meeting_member.hpp"

#include <cordma/base/unique_fd.hpp>
#include <cordma/group/joining.hpp>
#include <cordma/io/socket_address.hpp>
#include <cordma/runtime/runtime.hpp>
#include <cordma/verbs/gid.hpp>

#include <arpa/inet.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <fstream>

namespace cordma::detail {
namespace {

/// Documentation's address (RFC 5737): a default route leads there, and nothing is sent.
constexpr const char* somewhere_else = "192.0.2.1";
constexpr std::uint16_t some_port = 9;

/// Returns an address of IP that is a GID as well; empty: the GID is none, or only a link's.
std::string ip_of(const verbs::gid_entry& row) {
  if (row.type == verbs::gid_type::ib) return {};
  const auto& ip = reinterpret_cast<const in6_addr&>(row.gid.raw);
  char text[INET6_ADDRSTRLEN];
  if (IN6_IS_ADDR_V4MAPPED(&ip)) {
    return ::inet_ntop(AF_INET, &row.gid.raw[12], text, sizeof text);
  }
  if (IN6_IS_ADDR_LINKLOCAL(&ip)) return {};
  return ::inet_ntop(AF_INET6, &ip, text, sizeof text);
}

std::string ip_of_port(runtime& rt) {
  const connection_options& defaults = rt.connection_defaults();
  const verbs::port_info port =
      defaults.port != 0 ? rt.context().query_port(defaults.port) : rt.context().active_port();
  if (!port.is_ethernet()) return {};
  const auto row =
      verbs::choose_gid(rt.context().gid_table(port.number), {.index = defaults.gid_index});
  const std::string ip = ip_of(row);
  // Loopback's, as of a device that has no network: nobody else could connect.
  return ip.empty() || is_this_host({ip, some_port}) ? std::string{} : ip;
}

/// Returns this host's address on the route to another; a socket of UDP learns it without a packet.
std::string ip_toward(const std::string& host) {
  const socket_address to = socket_address::resolve(host, some_port).front();
  const unique_fd fd{::socket(to.data()->sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0)};
  sockaddr_storage own{};
  socklen_t size = sizeof own;
  if (!fd.is_open() || ::connect(fd.get(), to.data(), to.size_bytes()) != 0 ||
      ::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&own), &size) != 0) {
    throw_errno(errno, "getsockname",
                detail_text("no address by which %s reaches this host: name one in "
                            "group_options::listen",
                            host.c_str()));
  }
  socket_address address{reinterpret_cast<const sockaddr*>(&own), size};
  address.set_port(0);
  return endpoint::parse(address.to_string()).host;
}

}  // namespace

std::uint64_t host_number(const group_options& options) {
  if (options.host) return *options.host;
  constexpr const char* path = "/proc/sys/kernel/random/boot_id";
  errno = 0;
  std::string id;
  if (std::ifstream{path} >> id) return hash_of(id);
  throw_errno(errno != 0 ? errno : ENOENT, path,
              "nothing tells which ranks share this host: name it in group_options::host");
}

bool is_this_host(const endpoint& where) {
  if (where.kind == endpoint::bootstrap::unix_socket || where.host == "localhost") return true;
  in_addr v4{};
  if (::inet_pton(AF_INET, where.host.c_str(), &v4) == 1) return ntohl(v4.s_addr) >> 24 == 127;
  in6_addr v6{};
  return ::inet_pton(AF_INET6, where.host.c_str(), &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
}

bool is_wildcard(std::string_view host) noexcept { return host == "0.0.0.0" || host == "::"; }

endpoint reachable_endpoint(runtime& rt, const std::string& toward) {
  std::string ip = ip_of_port(rt);
  if (ip.empty()) ip = ip_toward(toward.empty() || is_wildcard(toward) ? somewhere_else : toward);
  return {ip, 0};
}

}  // namespace cordma::detail
