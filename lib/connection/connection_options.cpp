#include <cordma/connection/connection_options.hpp>

#include "agent/agent.hpp"
#include "base/check_option.hpp"
#include "base/failures.hpp"
#include "connection_state.hpp"
#include "verbs/queue_pair_attributes.hpp"
#include "verbs/shared_receive_queue.hpp"

#include <cordma/base/error.hpp>

#include <algorithm>

namespace cordma {
namespace {

/// Calls `with(field of options, field of changes)` for each field: a new field is added here.
void each_field(auto& o, auto& c, auto with) {
  with(o.port, c.port);
  with(o.gid_index, c.gid_index);
  with(o.pkey_index, c.pkey_index);
  with(o.fabric, c.fabric);
  with(o.transport, c.transport);
  with(o.xrc_domain, c.xrc_domain);
  with(o.capabilities, c.capabilities);
  with(o.receives_from, c.receives_from);
  with(o.preposted, c.preposted);
  with(o.preposted_bytes, c.preposted_bytes);
  with(o.remote_access, c.remote_access);
  with(o.rd_atomic_max, c.rd_atomic_max);
  with(o.timeout, c.timeout);
  with(o.retry_cnt, c.retry_cnt);
  with(o.rnr_retry, c.rnr_retry);
  with(o.min_rnr_timer, c.min_rnr_timer);
  with(o.heartbeat, c.heartbeat);
  with(o.agent, c.agent);
  with(o.credentials, c.credentials);
  with(o.insecure, c.insecure);
  with(o.plain, c.plain);
  with(o.allow_foreign_gid, c.allow_foreign_gid);
  with(o.private_data, c.private_data);
  with(o.connect_timeout, c.connect_timeout);
  with(o.close_timeout, c.close_timeout);
}

template <class T>
void change_to(T& ours, const std::optional<T>& change) {
  if (change) ours = *change;
}
/// Takes a change of an option that is itself optional: the change has no second level.
template <class T>
void change_to(std::optional<T>& ours, const std::optional<T>& change) {
  if (change) ours = change;
}
void change_to(fabric_options& ours, const fabric_options& change) {
  change_to(ours.service_level, change.service_level);
  change_to(ours.mtu, change.mtu);
  change_to(ours.traffic_class, change.traffic_class);
  change_to(ours.flow_label, change.flow_label);
  change_to(ours.hop_limit, change.hop_limit);
  change_to(ours.static_rate, change.static_rate);
}

void check_transport(const connection_options& o, const verbs::device_limits& limits) {
  using verbs::queue_pair_type;
  const auto refuse = [&](const char* why) {
    detail::throw_failure(
        errc::not_supported, "connection_options",
        detail::detail_text("transport %s: %s", verbs::to_string(o.transport), why));
  };
  const bool is_target = o.transport == queue_pair_type::xrc_target;
  const bool is_xrc = is_target || o.transport == queue_pair_type::xrc_initiator;
  if (o.transport == queue_pair_type::rc) return;
  if (o.transport != queue_pair_type::uc && !is_xrc)
    refuse("a connection is RC, UC or a half of XRC; datagrams are datagram_socket's");
  if (is_xrc) verbs::check_xrc("connection_options", limits);
  if (is_target && o.xrc_domain == nullptr)
    refuse("a target takes messages for a domain: set xrc_domain (runtime::open_xrc_domain)");
  if (is_xrc && o.receives_from != nullptr)
    refuse(
        "the sender names the pool of each message: leave receives_from, and give the peer "
        "shared_receives::num of a pool that was made in the domain");
  if (is_xrc && o.preposted != 0)
    refuse("its messages go to pools: leave preposted 0, and make pools in the domain");
  if (o.plain)
    refuse(
        "rdma_cm's port space RDMA_PS_TCP, of plain, is RC's; move the information yourself, "
        "prepared_connection::connect_plain");
}

void check_preposted(const connection_options& o) {
  constexpr long long message_bytes_max = 1LL << 31;  // IBTA 9.2.
  if (o.preposted == 0) return;
  if (o.receives_from != nullptr) {
    detail::throw_failure(
        errc::not_supported, "connection_options",
        detail::detail_text("preposted %u beside receives_from: the pool supplies "
                            "the receives; leave preposted 0",
                            unsigned{o.preposted}));
  }
  check_option("connection_options", "preposted, of capabilities.recv_wr_max,", o.preposted, 0,
               o.capabilities.recv_wr_max);
  check_option("connection_options", "preposted_bytes", static_cast<long long>(o.preposted_bytes),
               0, message_bytes_max);
}

/// A value that is unset is checked when the handshake has agreed on it.
void check(const fabric_options& o, const verbs::port_info& port) {
  const auto check_range = [](const char* name, const auto& value, long long low, long long high) {
    if (value) check_option("connection_options", name, static_cast<long long>(*value), low, high);
  };
  check_range("fabric.service_level", o.service_level, 0, verbs::service_level_limit);
  check_range("fabric.flow_label", o.flow_label, 0, verbs::flow_label_limit);
  check_range("fabric.hop_limit", o.hop_limit, 1, UINT8_MAX);
  if (o.mtu) {
    check_range("fabric.mtu (an ibv_mtu)", o.mtu, IBV_MTU_256, IBV_MTU_4096);
    const std::optional bytes = verbs::bytes_of(*o.mtu);
    check_range("fabric.mtu", bytes, verbs::bytes_of(IBV_MTU_256),
                verbs::bytes_of(port.mtu_active));
  }
  if (o.static_rate && !verbs::is_rate(*o.static_rate)) {
    detail::throw_failure(
        errc::limit_exceeded, "connection_options",
        detail::detail_text("fabric.static_rate %d is no ibv_rate", int(*o.static_rate)));
  }
}

}  // namespace

connection_options::operator connection_changes() const noexcept {
  connection_changes all;
  each_field(*this, all, [](const auto& ours, auto& change) { change = ours; });
  if (port == 0) all.port.reset();
  if (credentials == nullptr) all.credentials.reset();
  return all;
}

connection_options changed(connection_options defaults,
                           const connection_changes& changes) noexcept {
  each_field(defaults, changes, [](auto& ours, const auto& change) { change_to(ours, change); });
  return defaults;
}

void check(const connection_options& o, const verbs::device_limits& limits,
           const verbs::port_info& port) {
  const auto check_range = [](const char* name, long long value, long long low, long long high) {
    check_option("connection_options", name, value, low, high);
  };
  check_transport(o, limits);
  verbs::queue_pair_capabilities wanted = o.capabilities;
  if (o.receives_from != nullptr) wanted.recv_wr_max = wanted.recv_sge_max = 1;
  verbs::check(wanted, limits);
  check_preposted(o);
  if (o.agent.enabled) {
    check(o.agent);
    check_range("send_wr_max beside an agent", o.capabilities.send_wr_max, 1,
                static_cast<long long>(limits.qp_wr_max) - agent::reserved_slots);
  }
  verbs::check(verbs::rts_attributes{.rd_atomic_max = 0,
                                     .timeout = o.timeout,
                                     .retry_cnt = o.retry_cnt,
                                     .rnr_retry = o.rnr_retry},
               limits);
  check_range("min_rnr_timer", o.min_rnr_timer, 1, 31);
  check_range("pkey_index", o.pkey_index.value_or(0), 0,
              static_cast<long long>(port.pkey_count) - 1);
  check(o.fabric, port);
  if (o.gid_index) {
    check_range("gid_index", *o.gid_index, 0,
                std::min(255LL, static_cast<long long>(port.gid_count) - 1));
  }
  if (o.rd_atomic_max) {
    const auto most = std::min(limits.qp_rd_atom_max, limits.qp_init_rd_atom_max);
    check_range("rd_atomic_max", *o.rd_atomic_max, 0, most);
    const bool is_for_agent = o.agent.enabled && o.transport == verbs::queue_pair_type::rc;
    if (is_for_agent) check_range("rd_atomic_max beside an agent", *o.rd_atomic_max, 1, most);
  }
  if (o.credentials != nullptr && o.plain) {
    detail::throw_failure(errc::not_supported, "connection_options",
                          "credentials and plain: a peer that is not cordma shows none");
  }
  if (o.credentials != nullptr && !o.agent.enabled) {
    detail::throw_failure(errc::not_supported, "connection_options",
                          "credentials without an agent: agents bind the queue pairs to who the "
                          "peer is; leave agent.enabled");
  }
  check_timeout("connection_options", "heartbeat.interval", o.heartbeat.interval);
  check_range("heartbeat.misses", o.heartbeat.misses, 1, 1000);
  check_timeout("connection_options", "connect_timeout", o.connect_timeout);
  check_timeout("connection_options", "close_timeout", o.close_timeout);
}

}  // namespace cordma
