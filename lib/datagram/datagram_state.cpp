#include "datagram_state.hpp"

#include "datagram_address.hpp"
#include "ip_group.hpp"

#include "base/check_option.hpp"
#include "base/failures.hpp"
#include "base/random.hpp"
#include "connection/bootstrap_services.hpp"
#include "connection/handshake.hpp"
#include "queue/receive_queue.hpp"
#include "queue/send_queue.hpp"
#include "sender.hpp"

namespace cordma::detail {
namespace {

constexpr std::uint32_t privileged_qkey = 0x8000'0000;  // IBTA 10.2.5.
constexpr std::uint32_t qpn_max = 0xffffff;

unsigned cqes_max(const datagram_options& options) noexcept {
  return options.capacity.send_wr_max + options.capacity.recv_wr_max;
}

verbs::port_info datagram_port(const verbs::context& ctx, const datagram_options& options) {
  if (ctx.info().transport == IBV_TRANSPORT_IWARP) {
    throw error{{.code = errc::not_supported,
                 .call = "open_datagram",
                 .detail = "an iWARP device has no datagrams; use an InfiniBand or RoCE device"}};
  }
  return options.port == 0 ? ctx.active_port() : ctx.query_port(options.port);
}

/// The upper half of the Q_Keys is privileged.
std::uint32_t random_qkey() { return random_value<std::uint32_t>() & ~privileged_qkey; }

void check(const datagram_options& o) {
  const auto in_range = [](const char* name, long long value, long long low, long long high) {
    check_option("datagram_options", name, value, low, high);
  };
  in_range("recv_sge_max", o.capacity.recv_sge_max, 1, buffer_slices::size_max);
  in_range("qkey", o.qkey.value_or(0), 0, privileged_qkey - 1);
  in_range("routes_max", static_cast<long long>(o.routes_max), 1, 1 << 20);
}

}  // namespace

void check_open(const datagram_state& socket, const char* call) {
  if (socket.is_closed()) throw_failure(errc::closed, call, "the socket was dropped");
}

datagram_address address_of(const cm::datagram_peer& told) noexcept {
  datagram_address address;
  verbs::address_vector& path = address.path;
  path.lid = told.path.dlid;
  path.is_global = told.path.is_global != 0;
  path.gid = told.path.grh.dgid;
  path.hop_limit = told.path.grh.hop_limit;
  path.traffic_class = told.path.grh.traffic_class;
  path.flow_label = told.path.grh.flow_label;
  path.service_level = told.path.sl;
  path.static_rate = ibv_rate(told.path.static_rate);
  address.qpn = told.qpn;
  address.qkey = told.qkey;
  return address;
}

datagram_state::datagram_state(const connection_resources& resources,
                               const datagram_options& options)
    : resources_{resources},
      port_{datagram_port(resources.ctx, options)},
      gid_{verbs::choose_gid(resources.ctx.gid_table(port_.number), {.index = options.gid_index})},
      payload_max_{verbs::bytes_of(port_.mtu_active)},
      totals_{resources.bootstraps.datagrams},
      routes_{(check(options), options.routes_max)},
      pkey_index_{options.pkey_index} {
  qp_.emplace(resources.drivers.driver_for(cqes_max(options), nullptr), resources.pd,
              options.capacity, payload_max_, nullptr,
              queue_pair_role{.has_atomics = false, .type = verbs::queue_pair_type::ud});
  address_.path = port_.is_ethernet() ? verbs::address_vector::by_gid(gid_.gid, 0)
                                      : verbs::address_vector::by_lid(port_.lid);
  address_.qpn = qp_->verbs().num();
  address_.qkey = options.qkey ? *options.qkey : random_qkey();
  qp_->verbs().to_ud_rts({.port = port_.number,
                          .pkey_index = options.pkey_index,
                          .qkey = address_.qkey,
                          .sq_psn = handshake::random_psn()});
}

verbs::address_vector datagram_state::own_path(const datagram_address& to) const noexcept {
  verbs::address_vector path = to.path;
  path.gid_index = gid_.index;
  return path;
}

bool datagram_state::route_to(const datagram_address& to, request_destination& destination,
                              counted_ref<route>& path) noexcept {
  route* const known = routes_.find(path_key{to.path, gid_.index});
  if (known == nullptr || to.qpn > qpn_max) return false;
  note(&datagram_counters::routes_found, &datagram_totals::routes_found);
  path = counted_ref<route>{*known};
  destination = {.path = known->path(), .number = to.qpn, .qkey = to.qkey};
  return true;
}

task<> datagram_state::find_route(counted_ref<datagram_state> self, datagram_address to) {
  datagram_state& s = *self.get();
  cordma::check(to, "send_to");
  const verbs::address_vector path = s.own_path(to);
  if (s.routes_.find(path_key{path}) != nullptr) co_return;
  // The Ethernet address of a group is computed.
  if (s.port_.is_ethernet() && !is_multicast(path.gid)) {
    const auto found =
        co_await as_result(s.resources_.bootstraps.datagram_gids.resolve(s.port_.number, path));
    if (found.is_cancelled()) throw cancelled{};
    if (found.has_failure()) {
      s.note(&datagram_counters::routes_failed, &datagram_totals::routes_failed);
      throw error{found.failure()};
    }
  }
  check_open(s);
  if (s.routes_.find(path_key{path}) == nullptr) s.make_route(path);
}

void datagram_state::make_route(const verbs::address_vector& path) try {
  routes_.insert(path_key{path}, verbs::address_handle{resources_.pd, port_.number, path});
  note(&datagram_counters::routes_made, &datagram_totals::routes_made);
  const send_queue& sends = qp_->sends();
  note(&datagram_counters::routes_given_up, &datagram_totals::routes_given_up,
       routes_.trim(sends.posted_total(), sends.in_flight()));
} catch (...) {
  note(&datagram_counters::routes_failed, &datagram_totals::routes_failed);
  throw;
}

void datagram_state::close() noexcept {
  while (!groups_.empty()) groups_.front().leave();  // The device keeps a queue pair of a group.
  published_.reset();
  qp_.reset();  // Before the handles, which its requests name.
  routes_.clear();
}

bool route_to(const counted_ref<datagram_state>& from, const datagram_address& address,
              request_destination& to, counted_ref<route>& path) noexcept {
  return state_of(from).route_to(address, to, path);
}

send_queue& sends_of(const counted_ref<datagram_state>& from) {
  check_open(*from.get());
  return from->qp().sends();
}

task<> find_route(counted_ref<datagram_state> from, datagram_address address,
                  request_destination& to, counted_ref<route>& path) {
  do {
    co_await datagram_state::find_route(from, address);
    check_open(*from.get());
  } while (!from->route_to(address, to, path));
}

datagram next_without_message(const datagram_receiver& receiver) noexcept {
  const datagram_header& header = receiver.queue.next_header();
  return {{}, sender_of(header, receiver.address), is_multicast(header)};
}

}  // namespace cordma::detail
