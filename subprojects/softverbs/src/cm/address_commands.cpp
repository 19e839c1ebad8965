#include "cm/machine.hpp"
#include "node/gid_table.hpp"

#include <endian.h>
#include <sys/random.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>

// Commands that bind and resolve addresses. Routes are known at once, so that the event of a
// resolution waits when its command returns.

namespace softverbs::cm {

namespace {

constexpr std::uint16_t first_free_port = 1024;
// The services of AF_IB that stand for IP's port spaces (IBTA annex 11).
constexpr std::uint64_t service_space_mask = 0xffff'ffff'ffff'0000;
constexpr std::uint64_t service_space_ib = std::uint64_t{RDMA_PS_IB} << 16;
constexpr std::uint64_t service_space_tcp = std::uint64_t{RDMA_PS_TCP} << 16;
constexpr std::uint64_t service_space_udp = std::uint64_t{RDMA_PS_UDP} << 16;
// The kernel's default of net.ipv4.ip_local_port_range.
constexpr std::uint16_t ephemeral_first = 32768;
constexpr std::uint16_t ephemeral_count = 28232;

/// The address in a command; none if its size is not the one that the program gave.
template <class Raw>
address checked(const Raw& raw, std::size_t bytes) noexcept {
  const address result{&raw, sizeof raw};
  return result.bytes() == bytes ? result : address{};
}

/// The service that an AF_IB address asks for in that port space; 0: none.
std::uint64_t service_space_of(const sockaddr_ib& from, std::uint16_t space) noexcept {
  const std::uint64_t mask = be64toh(from.service_mask) & service_space_mask;
  const std::uint64_t service = be64toh(from.service) & mask;
  const bool any = space == RDMA_PS_IB;
  if (any && service == (service_space_ib & mask)) return service_space_ib;
  if ((any || space == RDMA_PS_TCP) && service == (service_space_tcp & mask))
    return service_space_tcp;
  if ((any || space == RDMA_PS_UDP) && service == (service_space_udp & mask))
    return service_space_udp;
  return 0;
}

std::uint16_t random_port() noexcept {
  std::uint16_t random = 0;
  (void)!::getrandom(&random, sizeof random, GRND_NONBLOCK);
  return static_cast<std::uint16_t>(ephemeral_first + random % ephemeral_count);
}

}  // namespace

int machine::bind_ip(channel& in, const command_body& body) {
  rdma_ucm_bind_ip command;
  constexpr std::size_t needed = offsetof(rdma_ucm_bind_ip, id) + sizeof command.id;
  if (const int error = body.read(command, needed)) return error;
  const address at{&command.addr, sizeof command.addr};
  if (at.bytes() == 0) return EINVAL;
  identifier* one = nullptr;
  if (const int error = find(in, command.id, one)) return error;
  return bind(*one, at);
}

int machine::bind_address(channel& in, const command_body& body) {
  rdma_ucm_bind command;
  if (const int error = body.read(command)) return error;
  const address at = checked(command.addr, command.addr_size);
  if (command.reserved != 0 || at.bytes() == 0) return EINVAL;
  identifier* one = nullptr;
  if (const int error = find(in, command.id, one)) return error;
  return bind(*one, at);
}

int machine::bind(identifier& one, const address& at) {
  if (one.state != id_state::idle) return EINVAL;
  if (at.family() == family_ib) return bind_service(one, at);
  if (at.is_link_local() && at.scope() == 0) return EINVAL;
  if (!at.is_wildcard()) {
    if (!is_own_address(at.gid())) return EADDRNOTAVAIL;
    if (one.space == RDMA_PS_IPOIB) return EINVAL;  // IPoIB exists only on InfiniBand.
    if (gid_index(at.gid()) < 0) return ENODEV;
  }
  if (at.port() != 0 && at.port() < first_free_port && !may_bind_low_ports()) return EACCES;
  if (!one.family_only_set) one.family_only = at.family() == AF_INET;
  if (const int error = bind_name(one, at)) return error;
  // For the kernel a loopback address belongs to no device. libfabric binds one, and asks for the
  // devices' addresses if it was given no device.
  one.has_device = !at.is_wildcard() && !at.is_loopback();
  if (one.destination.family() == 0) one.destination = address::wildcard(at.family());
  one.enter(id_state::bound);
  return 0;
}

int machine::bind_name(identifier& one, const address& at) {
  if (!one.reports_to->has_engine) return engine_needed;
  int error = 0;
  const bool v6_only = at.family() == AF_INET6 && one.family_only;
  one.name = network_->bind(one.space, at.at(), v6_only, one.reuse, error);
  if (!one.name) return error;
  one.source = at;
  one.source.set_port(one.name->at().port);
  return 0;
}

/// AF_IB's wildcard. librdmacm binds one to learn whether the kernel knows AF_IB. Nobody can reach
/// such an identifier, because a RoCE port has no other AF_IB address, so it needs no name.
int machine::bind_service(identifier& one, const address& at) {
  if (!at.is_wildcard() && !at.is_loopback()) return ENODEV;
  const std::uint64_t space = service_space_of(at.ib(), one.space);
  if (space == 0) return EPROTONOSUPPORT;
  const std::uint16_t wanted = at.port();
  if (wanted != 0 && wanted < first_free_port && !may_bind_low_ports()) return EACCES;
  one.source = at;
  one.source.ib().service = htobe64(space | (wanted != 0 ? wanted : random_port()));
  one.source.ib().service_mask = ~std::uint64_t{0};
  one.destination = address::wildcard(family_ib);
  one.enter(id_state::bound);
  return 0;
}

int machine::resolve_ip(channel& in, const command_body& body) {
  rdma_ucm_resolve_ip command;
  if (const int error = body.read(command)) return error;
  const address from{&command.src_addr, sizeof command.src_addr};
  const address to{&command.dst_addr, sizeof command.dst_addr};
  if ((command.src_addr.sin6_family != 0 && from.bytes() == 0) || to.bytes() == 0) return EINVAL;
  identifier* one = nullptr;
  if (const int error = find(in, command.id, one)) return error;
  return resolve(*one, from, to);
}

int machine::resolve_address(channel& in, const command_body& body) {
  rdma_ucm_resolve_addr command;
  if (const int error = body.read(command)) return error;
  const address from =
      command.src_size == 0 ? address{} : checked(command.src_addr, command.src_size);
  const address to = checked(command.dst_addr, command.dst_size);
  if (command.reserved != 0 || (command.src_size != 0 && from.bytes() == 0) || to.bytes() == 0)
    return EINVAL;
  identifier* one = nullptr;
  if (const int error = find(in, command.id, one)) return error;
  return resolve(*one, from, to);
}

/// An identifier that is bound keeps its address: `from` counts for others only.
int machine::resolve(identifier& one, const address& from, const address& to) {
  if (one.state != id_state::bound) {
    const bool given = from.family() != 0;
    if (const int error = bind(one, given ? from : address::wildcard(to.family()))) return error;
  }
  if (one.source.family() != to.family()) return EINVAL;
  one.destination = to;
  if (to.family() == family_ib) return ENODEV;
  one.target = to;
  if (to.is_wildcard()) {  // The wildcard is this host, as for the kernel.
    one.target = address::loopback(to.family());
    one.target.set_port(to.port());
  }
  address source;
  if (const int error = choose_source(one.source, one.target, source)) return error;
  if (!one.has_device) {
    const bool on_infiniband_only = one.space == RDMA_PS_IPOIB;
    if (on_infiniband_only || gid_index(source.gid()) < 0) {
      raise(one, event_kind::address_error, on_infiniband_only ? -EINVAL : -ENODEV);
      return 0;
    }
    one.source = source;
    one.has_device = true;
  }
  one.enter(id_state::address_resolved);
  raise(one, event_kind::address_resolved);
  return 0;
}

int machine::resolve_route(channel& in, const command_body& body) {
  rdma_ucm_resolve_route command;
  if (const int error = body.read(command)) return error;
  identifier* one = nullptr;
  if (const int error = find_with_device(in, command.id, one)) return error;
  if (command.timeout_ms == 0 || one->state != id_state::address_resolved) return EINVAL;
  path& route = one->route;
  route.source = one->source_gid();
  route.destination = one->destination_gid();
  route.traffic_class = one->service_type;
  route.flow_label = flow_label_of(one->source.port(), one->destination.port());
  if (one->ack_timeout_set && one->ack_timeout != 0)
    route.life_time = static_cast<std::uint8_t>(std::min(one->ack_timeout - 1, int{life_time_max}));
  one->has_path = true;
  one->enter(id_state::route_resolved);
  raise(*one, event_kind::route_resolved);
  return 0;
}

/// Service records are a subnet's, and a RoCE port has no subnet manager.
int machine::resolve_ib_service(channel& in, const command_body& body) {
  resolve_ib_service_command command;
  if (const int error = body.read(command)) return error;
  identifier* one = nullptr;
  if (const int error = find_with_device(in, command.id, one)) return error;
  return one->state == id_state::bound ? EOPNOTSUPP : EINVAL;
}

}  // namespace softverbs::cm
