#include "abi/attributes.hpp"

#include "abi/dispatch.hpp"
#include "node/gid_table.hpp"
#include "node/port.hpp"
#include "wire/no_cancellation.hpp"

#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/types.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>

// The port: its attributes, GIDs and P_Keys.

namespace softverbs {

namespace {

// Encodings in PortInfo (IBTA volume 1, 14.2.5.6) that have no names in <verbs.h>.
constexpr std::uint8_t width_4x = 2;
constexpr std::uint8_t speed_25_gbps = 32;  // Per lane: nominal, as memory has no link speed.
constexpr std::uint8_t physical_polling = 2;
constexpr std::uint8_t physical_link_up = 5;
constexpr std::uint8_t grh_required = 1;     // IBV_QPF_GRH_REQUIRED
constexpr std::uint8_t subnet_timeout = 18;  // 4.096 us << 18: what subnet managers set.

constexpr __be16 default_pkey = 0xffff;

constexpr ibv_gid empty_gid{};

bool is_empty(const ibv_gid& gid) noexcept {
  return std::memcmp(&gid, &empty_gid, sizeof gid) == 0;
}

ibv_port_attr describe_port(const node& local_node) noexcept {
  ibv_port_attr is{};
  const simulated_host* const host = local_node.simulated();
  const bool is_up = host == nullptr || host->is_port_up();
  is.state = is_up ? IBV_PORT_ACTIVE : IBV_PORT_DOWN;
  is.max_mtu = is.active_mtu = IBV_MTU_4096;
  is.gid_tbl_len = gid_table_size;
  is.port_cap_flags = IBV_PORT_CM_SUP;
  is.max_msg_sz = limits().message_bytes;
  is.pkey_tbl_len = 1;
  is.qkey_viol_cntr = local_node.qkey_violations();
  is.max_vl_num = 1;
  is.active_width = width_4x;
  is.active_speed = speed_25_gbps;
  is.phys_state = is_up ? physical_link_up : physical_polling;
  if (const subnet* const known = port_subnet()) {
    is.link_layer = IBV_LINK_LAYER_INFINIBAND;
    is.lid = is.sm_lid = known->own_lid();  // No subnet manager runs anywhere else.
    is.subnet_timeout = subnet_timeout;
  } else {
    is.link_layer = IBV_LINK_LAYER_ETHERNET;
    is.flags = grh_required;
    is.port_cap_flags |= IBV_PORT_IP_BASED_GIDS;
  }
  return is;
}

/// The address as a GID: IPv4 addresses are mapped. Empty when it is of neither family.
ibv_gid gid_of(const sockaddr* address) noexcept {
  ibv_gid gid{};
  if (address == nullptr) return gid;
  if (address->sa_family == AF_INET6) {
    const auto& v6 = *reinterpret_cast<const sockaddr_in6*>(address);
    std::memcpy(gid.raw, &v6.sin6_addr, sizeof gid.raw);
  } else if (address->sa_family == AF_INET) {
    const auto& v4 = *reinterpret_cast<const sockaddr_in*>(address);
    gid.raw[10] = gid.raw[11] = 0xff;
    std::memcpy(gid.raw + 12, &v4.sin_addr, sizeof v4.sin_addr);
  }
  return gid;
}

/// The index of the network interface that has this address; 0 when there is none now.
std::uint32_t interface_of(const ibv_gid& gid) noexcept {
  const no_cancellation wholly;
  ifaddrs* first = nullptr;
  if (::getifaddrs(&first) != 0) return 0;
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner{first, ::freeifaddrs};
  for (const ifaddrs* at = first; at != nullptr; at = at->ifa_next) {
    const ibv_gid candidate = gid_of(at->ifa_addr);
    if (std::memcmp(&candidate, &gid, sizeof gid) == 0) return ::if_nametoindex(at->ifa_name);
  }
  return 0;
}

ibv_gid_entry describe_gid(std::uint32_t index, const ibv_gid& gid) noexcept {
  const bool has_interface = !is_infiniband() && simulated_host::current() == nullptr;
  return {.gid = gid,
          .gid_index = index,
          .port_num = only_port,
          .gid_type = std::uint32_t{is_infiniband() ? IBV_GID_TYPE_IB : IBV_GID_TYPE_ROCE_V2},
          .ndev_ifindex = has_interface ? interface_of(gid) : 0};
}

/// The GID at this index of the table, which may be empty. nullopt: the index is out of range.
std::optional<ibv_gid> find_gid(std::uint32_t port, std::int64_t index) noexcept {
  if (port != only_port || index < 0 || index >= gid_table_size) return std::nullopt;
  return gid_at(static_cast<int>(index));
}

int query_gid_soft(ibv_context*, std::uint8_t port, int index, ibv_gid* result) {
  const auto gid = find_gid(port, index);
  if (!gid) return EINVAL;
  *result = *gid;
  return 0;
}

int query_gid_ex_soft(ibv_context*, std::uint32_t port, std::uint32_t index, ibv_gid_entry* result,
                      std::uint32_t flags, std::size_t entry_bytes) {
  if (flags != 0) return EOPNOTSUPP;
  const auto gid = find_gid(port, index);
  if (!gid) return EINVAL;
  if (is_empty(*gid)) return ENODATA;
  const ibv_gid_entry entry = describe_gid(index, *gid);
  std::memset(result, 0, entry_bytes);
  std::memcpy(result, &entry, std::min(entry_bytes, sizeof entry));
  return 0;
}

/// The number of entries, or an errno value below zero.
ssize_t query_gid_table_soft(ibv_context*, ibv_gid_entry* entries, std::size_t entries_max,
                             std::uint32_t flags, std::size_t entry_bytes) {
  if (flags != 0) return -EOPNOTSUPP;
  auto* const to = reinterpret_cast<std::byte*>(entries);
  std::size_t count = 0;
  for (std::uint32_t index = 0; index < gid_table_size; ++index) {
    const ibv_gid gid = gid_at(static_cast<int>(index));
    if (is_empty(gid)) continue;
    if (count == entries_max) return -EINVAL;
    const ibv_gid_entry entry = describe_gid(index, gid);
    std::memset(to + count * entry_bytes, 0, entry_bytes);
    std::memcpy(to + count * entry_bytes, &entry, std::min(entry_bytes, sizeof entry));
    ++count;
  }
  return entries_max == 0 ? -EINVAL : static_cast<ssize_t>(count);
}

/// The kind of a GID as sysfs tells it, and <infiniband/driver.h> numbers it.
enum class sysfs_gid_type : unsigned { ib_or_roce_v1, roce_v2 };

int query_gid_type_soft(ibv_context*, std::uint8_t port, unsigned index, sysfs_gid_type* type) {
  const auto gid = find_gid(port, index);
  if (!gid) return EINVAL;
  // libibverbs returns the same for an empty entry.
  *type =
      is_empty(*gid) || is_infiniband() ? sysfs_gid_type::ib_or_roce_v1 : sysfs_gid_type::roce_v2;
  return 0;
}

int query_pkey_soft(ibv_context*, std::uint8_t port, int index, __be16* pkey) {
  if (port != only_port || index != 0) return EINVAL;
  *pkey = default_pkey;
  return 0;
}

}  // namespace

int query_port(ibv_context* ctx, std::uint8_t port, ibv_port_attr* attr, std::size_t attr_bytes) {
  if (const int error = entry::refused("ibv_query_port", ctx)) return with_errno(error);
  if (port != only_port) return with_errno(EINVAL);
  const ibv_port_attr is = describe_port(*soft(ctx).local_node);
  std::memset(attr, 0, attr_bytes);
  std::memcpy(attr, &is, std::min(attr_bytes, sizeof is));
  return 0;
}

}  // namespace softverbs

using namespace softverbs;

extern "C" {

int ibv_query_port(ibv_context* ctx, std::uint8_t port, _compat_ibv_port_attr* attr) {
  if (!is_soft(ctx)) return real::call<"ibv_query_port">(ibv_query_port, ctx, port, attr);
  // Callers of this entry point have the structure up to `flags` only.
  return query_port(ctx, port, reinterpret_cast<ibv_port_attr*>(attr),
                    offsetof(ibv_port_attr, port_cap_flags2));
}

int ibv_query_gid(ibv_context* ctx, std::uint8_t port, int index, ibv_gid* gid) {
  if (!is_soft(ctx)) return real::call<"ibv_query_gid">(ibv_query_gid, ctx, port, index, gid);
  return or_minus_one(serve("ibv_query_gid", ctx, query_gid_soft, ctx, port, index, gid));
}

int _ibv_query_gid_ex(ibv_context* ctx, std::uint32_t port, std::uint32_t index,
                      ibv_gid_entry* entry, std::uint32_t flags, std::size_t entry_bytes) {
  if (!is_soft(ctx))
    return real::call<"_ibv_query_gid_ex", "IBVERBS_1.11">(_ibv_query_gid_ex, ctx, port, index,
                                                           entry, flags, entry_bytes);
  return serve("ibv_query_gid", ctx, query_gid_ex_soft, ctx, port, index, entry, flags,
               entry_bytes);
}

ssize_t _ibv_query_gid_table(ibv_context* ctx, ibv_gid_entry* entries, std::size_t entries_max,
                             std::uint32_t flags, std::size_t entry_bytes) {
  if (!is_soft(ctx))
    return real::call<"_ibv_query_gid_table", "IBVERBS_1.11">(_ibv_query_gid_table, ctx, entries,
                                                              entries_max, flags, entry_bytes);
  if (const int error = entry::refused("ibv_query_gid_table", ctx)) return -error;
  return query_gid_table_soft(ctx, entries, entries_max, flags, entry_bytes);
}

// A private function of libibverbs that its tools import.
int ibv_query_gid_type(ibv_context* ctx, std::uint8_t port, unsigned index, sysfs_gid_type* type);
int ibv_query_gid_type(ibv_context* ctx, std::uint8_t port, unsigned index, sysfs_gid_type* type) {
  if (!is_soft(ctx))
    return real::call<"ibv_query_gid_type", "IBVERBS_PRIVATE_34">(ibv_query_gid_type, ctx, port,
                                                                  index, type);
  return or_minus_one(
      serve("ibv_query_gid_type", ctx, query_gid_type_soft, ctx, port, index, type));
}

int ibv_query_pkey(ibv_context* ctx, std::uint8_t port, int index, __be16* pkey) {
  if (!is_soft(ctx)) return real::call<"ibv_query_pkey">(ibv_query_pkey, ctx, port, index, pkey);
  return or_minus_one(serve("ibv_query_pkey", ctx, query_pkey_soft, ctx, port, index, pkey));
}

int ibv_get_pkey_index(ibv_context* ctx, std::uint8_t port, __be16 pkey) {
  if (!is_soft(ctx))
    return real::call<"ibv_get_pkey_index", "IBVERBS_1.5">(ibv_get_pkey_index, ctx, port, pkey);
  const int error = entry::refused("ibv_get_pkey_index", ctx);
  return or_minus_one(error != 0 ? error : port == only_port && pkey == default_pkey ? 0 : EINVAL);
}

}  // extern "C"
