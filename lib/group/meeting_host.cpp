#include "meeting_host.hpp"

#include "base/failures.hpp"
#include "io/host_calls.hpp"
#include "meeting_member.hpp"

#include <cordma/group/joining.hpp>
#include <cordma/io/socket_address.hpp>
#include <cordma/runtime/runtime.hpp>
#include <cordma/verbs/gid.hpp>

#include <arpa/inet.h>

#include <cstring>

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

std::string ip_toward(host_calls& own, const std::string& host) {
  const socket_address to = own.resolve(host, some_port).front();
  try {
    return endpoint::parse(own.address_toward(to).to_string()).host;
  } catch (const error& e) {
    failure f = e.failure();
    f.detail = detail_text(
        "no address by which %s reaches this host: name one in "
        "group_options::listen",
        host.c_str());
    throw_error(f);
  }
}

}  // namespace

std::uint64_t host_number(runtime& rt, const group_options& options) {
  if (options.host) return *options.host;
  try {
    return hash_of(rt.executor().reactor().host().boot_id());
  } catch (const error& e) {
    failure f = e.failure();
    f.detail = "nothing tells which ranks share this host: name it in group_options::host";
    throw_error(f);
  }
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
  if (ip.empty())
    ip = ip_toward(rt.executor().reactor().host(),
                   toward.empty() || is_wildcard(toward) ? somewhere_else : toward);
  return {ip, 0};
}

}  // namespace cordma::detail
