#include <cordma/verbs/queue_pair_attributes.hpp>

#include "failures.hpp"
#include "queue_pair_attributes.hpp"

namespace cordma::verbs {
namespace {

constexpr std::uint64_t max_24_bits = (1u << 24) - 1;
constexpr const char* device = "the device's";
constexpr const char* most = "the most,";

}  // namespace

void check(queue_pair_type type) {
  const char* needs = "no queue pair that cordma makes: RC, UC, UD or a half of XRC";
  switch (int(type)) {
    case IBV_QPT_RC:
    case IBV_QPT_UC:
    case IBV_QPT_UD:
    case IBV_QPT_XRC_SEND: return;
    case IBV_QPT_XRC_RECV: needs = "an XRC target: make it in its xrc_domain"; break;
    case IBV_QPT_RAW_PACKET: needs = "raw packets: they need ibv_create_flow(3)"; break;
    case IBV_QPT_DRIVER:
      needs = "a vendor's, such as DCT: it needs the vendor's own interface, mlx5dv_create_qp(3)";
      break;
    default: break;
  }
  detail::throw_failure(errc::not_supported, "ibv_create_qp",
                        detail::detail_text("type %d is %s", int(type), needs));
}

void check(const queue_pair_capabilities& wanted, const device_limits& limits) {
  constexpr const char* call = "ibv_create_qp";
  detail::check_range(call, "send_wr_max", wanted.send_wr_max, 1, limits.qp_wr_max, device);
  detail::check_range(call, "recv_wr_max", wanted.recv_wr_max, 1, limits.qp_wr_max, device);
  detail::check_range(call, "send_sge_max", wanted.send_sge_max, 1, limits.sge_max, device);
  detail::check_range(call, "recv_sge_max", wanted.recv_sge_max, 1, limits.sge_max, device);
}

void check(const rtr_attributes& a, const device_limits& limits) {
  constexpr const char* call = "ibv_modify_qp";
  if (bytes_of(a.path_mtu) == 0) {
    detail::throw_failure(errc::limit_exceeded, call,
                          detail::detail_text("path_mtu %d is none of IBV_MTU_256 (1) to "
                                              "IBV_MTU_4096 (5)",
                                              int(a.path_mtu)));
  }
  detail::check_range(call, "dest_qpn", a.dest_qpn, 0, max_24_bits, most);
  detail::check_range(call, "rq_psn", a.rq_psn, 0, max_24_bits, most);
  detail::check_range(call, "dest_rd_atomic_max", a.dest_rd_atomic_max, 0, limits.qp_rd_atom_max,
                      device);
  if (a.min_rnr_timer == 0) {
    detail::throw_failure(errc::limit_exceeded, call,
                          "min_rnr_timer 0 makes the peer wait 655.36 ms; 1 to 31, 12 is 0.64 ms");
  }
  detail::check_range(call, "min_rnr_timer", a.min_rnr_timer, 1, 31, most);
  check(a.peer, call);
}

void check(const address_vector& peer, const char* call) {
  detail::check_range(call, "service_level", peer.service_level, 0, service_level_limit, most);
  detail::check_range(call, "flow_label", peer.flow_label, 0, flow_label_limit, most);
  if (!is_rate(peer.static_rate)) {
    detail::throw_failure(
        errc::limit_exceeded, call,
        detail::detail_text("static_rate %d is no ibv_rate", int(peer.static_rate)));
  }
  // The field is 8 bits wide in `ibv_global_route`.
  detail::check_range(call, "gid_index", peer.gid_index, 0, 255, most);
  if (!peer.is_global && peer.lid == 0) {
    detail::throw_failure(errc::limit_exceeded, call,
                          "the peer has neither a LID nor a GID; a RoCE port needs a GID");
  }
}

void check(const datagram_attributes& a, const device_limits& limits) {
  constexpr const char* call = "ibv_modify_qp";
  detail::check_range(call, "port", a.port, 1, limits.port_count, device);
  detail::check_range(call, "sq_psn", a.sq_psn, 0, max_24_bits, most);
}

ibv_ah_attr ah_of(const address_vector& peer, std::uint8_t port) noexcept {
  ibv_ah_attr ah{};
  ah.dlid = peer.lid;
  ah.sl = peer.service_level;
  ah.static_rate = static_cast<std::uint8_t>(peer.static_rate);
  ah.port_num = port;
  if (!peer.is_global) return ah;
  ah.is_global = 1;
  ah.grh.dgid = peer.gid;
  ah.grh.sgid_index = static_cast<std::uint8_t>(peer.gid_index);
  ah.grh.flow_label = peer.flow_label;
  ah.grh.hop_limit = peer.hop_limit;
  ah.grh.traffic_class = peer.traffic_class;
  return ah;
}

void check(const rts_attributes& a, const device_limits& limits) {
  constexpr const char* call = "ibv_modify_qp";
  detail::check_range(call, "sq_psn", a.sq_psn, 0, max_24_bits, most);
  detail::check_range(call, "rd_atomic_max", a.rd_atomic_max, 0, limits.qp_init_rd_atom_max,
                      device);
  if (a.timeout == 0) {
    detail::throw_failure(errc::limit_exceeded, call,
                          "timeout 0 waits for ever for a lost packet; 1 to 31, 15 is 134 ms");
  }
  detail::check_range(call, "timeout", a.timeout, 1, 31, most);
  detail::check_range(call, "retry_cnt", a.retry_cnt, 0, 7, most);
  if (a.rnr_retry == 7) {
    detail::throw_failure(errc::limit_exceeded, call,
                          "rnr_retry 7 retries for ever when the peer posts no receive; 0 to 6");
  }
  detail::check_range(call, "rnr_retry", a.rnr_retry, 0, 6, most);
}

}  // namespace cordma::verbs
