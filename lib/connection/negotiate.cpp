#include "base/failures.hpp"
#include "verbs/gid.hpp"

#include <cordma/verbs/device.hpp>
#include "connection/handshake.hpp"

#include <algorithm>
#include <cstring>

namespace cordma::handshake {
namespace {

using detail::detail_text;

[[noreturn]] void refuse(const fixed_text<240>& why) {
  detail::throw_failure(errc::incompatible_peer, "handshake", why);
}

void check_network(const hello& local, const hello& remote) {
  for (const hello* one : {&local, &remote}) {
    if (one->transport_kind == transport::infiniband) continue;
    refuse(detail_text(
        "transport %s here, %s there: a queue pair is set up for InfiniBand or RoCE only",
        to_string(local.transport_kind), to_string(remote.transport_kind)));
  }
  if (remote.service != peer_of(local.service)) {
    refuse(
        detail_text("transport %s here, %s there: set the same connection_options::transport on "
                    "both sides, or the two halves of XRC",
                    to_string(local.service), to_string(remote.service)));
  }
  if (local.layer != remote.layer) {
    refuse(detail_text("link layer %s here, %s there: choose ports of one network",
                       to_string(local.layer), to_string(remote.layer)));
  }
  if (local.layer == link_layer::ethernet && local.gid_kind != remote.gid_kind) {
    refuse(detail_text("GID type %s here, %s there: set gid_index on one side",
                       verbs::to_string(local.gid_kind), verbs::to_string(remote.gid_kind)));
  }
}

/// Two P_Keys match if they name one partition, and are not both of limited members (IBTA 10.9.3).
void check_partition(const hello& local, const hello& remote) {
  const unsigned here = local.pkey;
  const unsigned there = remote.pkey;
  if (((here ^ there) & pkey_partition) != 0) {
    refuse(detail_text("P_Key 0x%04x here, 0x%04x there: choose rows of one partition (pkey_index)",
                       here, there));
  }
  if (((here | there) & pkey_full) == 0) {
    refuse(
        detail_text("P_Key 0x%04x here, 0x%04x there: limited members of a partition do not "
                    "reach each other, one side must be a full member",
                    here, there));
  }
}

ibv_mtu agreed_mtu(const hello& local, const hello& remote) {
  const auto& here = local.fabric.mtu;
  const auto& there = remote.fabric.mtu;
  if (here && there && *here != *there) {
    refuse(detail_text("MTU %u here, %u there: set the same on both sides, or on one only",
                       verbs::bytes_of(*here), verbs::bytes_of(*there)));
  }
  const ibv_mtu most = std::min(local.mtu, remote.mtu);
  const ibv_mtu wanted = here ? *here : there.value_or(most);
  if (wanted > most) {
    refuse(
        detail_text("MTU %u is set %s, and the active MTU of the port %s is %u: set at most that",
                    verbs::bytes_of(wanted), here ? "here" : "there",
                    local.mtu < wanted ? "here" : "there", verbs::bytes_of(most)));
  }
  return wanted;
}

/// Replaces in `peer` what a side names.
void agree_on_route(verbs::address_vector& peer, const hello& local, const hello& remote,
                    side ours) {
  const bool is_client = ours == side::client;
  const fabric_options& proposed = is_client ? local.fabric : remote.fabric;
  const fabric_options& decided = is_client ? remote.fabric : local.fabric;
  const auto take = [&](const char* name, auto& value, auto option, bool is_shared) {
    const auto& here = local.fabric.*option;
    const auto& there = remote.fabric.*option;
    if (is_shared && here && there && *here != *there) {
      refuse(detail_text("%s %u here, %u there: set the same on both sides, or on one only", name,
                         unsigned(*here), unsigned(*there)));
    }
    value = (decided.*option).value_or((proposed.*option).value_or(value));
  };
  const bool are_equal = ours == side::equal;
  take("service level", peer.service_level, &fabric_options::service_level, true);
  take("traffic class", peer.traffic_class, &fabric_options::traffic_class, are_equal);
  take("flow label", peer.flow_label, &fabric_options::flow_label, are_equal);
  take("hop limit", peer.hop_limit, &fabric_options::hop_limit, are_equal);
  take("static rate (an ibv_rate)", peer.static_rate, &fabric_options::static_rate, are_equal);
}

verbs::address_vector address_of(const hello& local, const hello& remote, std::uint32_t gid_index) {
  // The first 8 bytes are the subnet prefix: within one subnet the LID is enough, and costs no GRH.
  const bool same_subnet =
      verbs::same_gid(remote.gid, {}) || std::memcmp(local.gid.raw, remote.gid.raw, 8) == 0;
  const bool by_lid = local.layer == link_layer::infiniband && remote.lid != 0 && same_subnet;
  return by_lid ? verbs::address_vector::by_lid(remote.lid)
                : verbs::address_vector::by_gid(remote.gid, gid_index, remote.lid);
}

}  // namespace

service service_of(verbs::queue_pair_type transport) noexcept {
  switch (transport) {
    case verbs::queue_pair_type::uc: return service::unreliable;
    case verbs::queue_pair_type::xrc_initiator: return service::xrc_initiator;
    case verbs::queue_pair_type::xrc_target: return service::xrc_target;
    default: return service::reliable;
  }
}

service peer_of(service local) noexcept {
  switch (local) {
    case service::xrc_initiator: return service::xrc_target;
    case service::xrc_target: return service::xrc_initiator;
    default: return local;
  }
}

agreement negotiate(const hello& local, const hello& remote, std::uint32_t gid_index, side ours) {
  return negotiate(local, remote, address_of(local, remote, gid_index), ours);
}

agreement negotiate(const hello& local, const hello& remote, const verbs::address_vector& peer,
                    side ours) {
  check_network(local, remote);
  check_partition(local, remote);
  agreement a;
  a.rtr.peer = peer;
  agree_on_route(a.rtr.peer, local, remote, ours);
  a.rtr.path_mtu = agreed_mtu(local, remote);
  a.rtr.dest_qpn = remote.qpn;
  a.rtr.rq_psn = remote.psn;
  a.rtr.dest_rd_atomic_max = std::min(local.rd_atomic_responder, remote.rd_atomic_initiator);
  a.rts.sq_psn = local.psn;
  a.rts.rd_atomic_max = std::min(local.rd_atomic_initiator, remote.rd_atomic_responder);
  const agent_address& theirs = remote.agent;
  if (local.agent.qpn != 0 && theirs.qpn != 0 && local.agent.version == theirs.version) {
    const bool has_reads = a.rts.rd_atomic_max != 0 && a.rtr.dest_rd_atomic_max != 0;
    if (!has_reads && local.service == service::reliable) {
      refuse(
          detail_text("%u READs at once from here, %u from there: beside agents each way needs one",
                      a.rts.rd_atomic_max, a.rtr.dest_rd_atomic_max));
    }
    // The check comes after the version's: another version of the agents' protocol may have no
    // flush word.
    if (theirs.flush_word.size_bytes() == 0)
      detail::throw_failure(errc::bad_handshake, "handshake", "an agent's flush word of 0 bytes");
    a.control = a;
    a.control->rtr.dest_qpn = theirs.qpn;
    a.control->rtr.rq_psn = theirs.psn;
    a.control->rtr.dest_rd_atomic_max = 0;
    a.control->rts.sq_psn = local.agent.psn;
    a.control->rts.rd_atomic_max = 0;
  }
  return a;
}

}  // namespace cordma::handshake
