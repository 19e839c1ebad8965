#include "node/gid_table.hpp"

#include "link/ip_address.hpp"
#include "node/fork_mutex.hpp"
#include "node/port.hpp"
#include "node/simulation.hpp"
#include "wire/no_cancellation.hpp"

#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <span>
#include <tuple>
#include <vector>

namespace softverbs {

namespace {

bool is_link_local(const ibv_gid& gid) noexcept {
  return gid.raw[0] == 0xfe && (gid.raw[1] & 0xc0) == 0x80;
}

struct host_address {
  int rank;  ///< IPv4, IPv6, link-local
  unsigned interface;
  std::size_t order;  ///< the order of the system
  ibv_gid gid;
};

bool read_address(const ifaddrs& one, host_address& result) noexcept {
  if (one.ifa_addr == nullptr || (one.ifa_flags & IFF_UP) == 0) return false;
  if (one.ifa_addr->sa_family == AF_INET) {
    result.gid = mapped<ibv_gid>(reinterpret_cast<const sockaddr_in*>(one.ifa_addr)->sin_addr);
    result.rank = 0;
  } else if (one.ifa_addr->sa_family == AF_INET6) {
    const in6_addr& address = reinterpret_cast<const sockaddr_in6*>(one.ifa_addr)->sin6_addr;
    std::memcpy(&result.gid, &address, sizeof address);
    result.rank = is_link_local(result.gid) ? 2 : 1;
  } else {
    return false;
  }
  result.interface = ::if_nametoindex(one.ifa_name);
  return !is_loopback(result.gid);
}

/// Reads the addresses of the system; on failure only loopback is left. \errors std::bad_alloc.
std::vector<host_address> host_addresses() {
  const no_cancellation wholly;
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return {};
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner{list, &::freeifaddrs};
  std::vector<host_address> entries;
  for (const ifaddrs* one = list; one != nullptr; one = one->ifa_next)
    if (host_address found{}; read_address(*one, found)) {
      found.order = entries.size();
      entries.push_back(found);
    }
  std::sort(entries.begin(), entries.end(), [](const host_address& a, const host_address& b) {
    return std::tie(a.rank, a.interface, a.order) < std::tie(b.rank, b.interface, b.order);
  });
  return entries;
}

bool has(std::span<const ibv_gid> gids, const ibv_gid& gid) noexcept {
  return std::any_of(gids.begin(), gids.end(), [&](const ibv_gid& one) { return same(one, gid); });
}

struct address_list {
  std::array<ibv_gid, gids_max> gids{};
  int count = 0;

  [[nodiscard]] std::span<const ibv_gid> known() const noexcept {
    return {gids.data(), static_cast<std::size_t>(count)};
  }

  void read() noexcept {
    try {
      for (const host_address& one : host_addresses())
        if (count < gids_max - 1 && !has(known(), one.gid))  // VLANs share a link-local address.
          gids[static_cast<std::size_t>(count++)] = one.gid;
    } catch (const std::bad_alloc&) {
      count = 0;  // 127.0.0.1 serves within the host.
    }
    gids[static_cast<std::size_t>(count++)] = mapped<ibv_gid>({htonl(INADDR_LOOPBACK)});
  }
};

fork_mutex reading;
constinit std::atomic<const address_list*> read_once{nullptr};

/// The table is no function-local static: a fork while another thread initializes one would leave
/// the child waiting.
const address_list& real_table() noexcept {
  if (const address_list* known = read_once.load(std::memory_order_acquire)) return *known;
  static constinit address_list only_table;
  const std::lock_guard lock{reading};
  if (read_once.load(std::memory_order_relaxed) == nullptr) {
    only_table.read();
    read_once.store(&only_table, std::memory_order_release);
  }
  return only_table;
}

/// The addresses of the host that makes the call.
std::span<const ibv_gid> host_table() noexcept {
  if (const simulated_host* const host = simulated_host::current()) return host->gids();
  return real_table().known();
}

}  // namespace

int gid_count() noexcept { return is_infiniband() ? 1 : static_cast<int>(host_table().size()); }

ibv_gid gid_at(int index) noexcept {
  if (is_infiniband()) return index == 0 ? port_gid() : ibv_gid{};
  const std::span<const ibv_gid> known = host_table();
  const auto at = static_cast<std::size_t>(index);
  return index >= 0 && at < known.size() ? known[at] : ibv_gid{};
}

int gid_index(const ibv_gid& own) noexcept {
  const int count = gid_count();
  for (int index = 0; index < count; ++index)
    if (same(gid_at(index), own)) return index;
  // 127.0.0.1 is the last GID, but an InfiniBand port does not have it.
  return is_loopback(own) && !is_infiniband() ? count - 1 : -1;
}

std::uint32_t first_ip4_address() noexcept {
  const std::span<const ibv_gid> known = host_table();
  // IPv4 comes first; the last entry is 127.0.0.1.
  return ntohl(ip4_of(is_mapped(known.front()) ? known.front() : known.back()).s_addr);
}

bool is_own_address(const ibv_gid& gid) noexcept {
  if (same(gid, ibv_gid{}) || is_loopback(gid)) return true;
  if (has(host_table(), gid)) return true;
  if (simulated_host::current() != nullptr) return false;
  try {
    const std::vector<ibv_gid> now = interface_addresses();
    return std::any_of(now.begin(), now.end(), [&](const ibv_gid& one) { return same(one, gid); });
  } catch (const std::bad_alloc&) {
    return false;
  }
}

std::vector<ibv_gid> interface_addresses() {
  std::vector<ibv_gid> result;
  for (const host_address& one : host_addresses()) result.push_back(one.gid);
  return result;
}

}  // namespace softverbs
