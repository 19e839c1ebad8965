#include "attributes.hpp"

#include <algorithm>

namespace cordma::cm {
namespace {

constexpr std::uint8_t rnr_retry_max = 6;

verbs::address_vector to_address_vector(const ibv_ah_attr& from) noexcept {
  verbs::address_vector to = verbs::address_vector::by_lid(from.dlid);
  to.service_level = from.sl;
  to.static_rate = ibv_rate(from.static_rate);
  if (from.is_global == 0) return to;
  to.is_global = true;
  to.gid = from.grh.dgid;
  to.gid_index = from.grh.sgid_index;
  to.hop_limit = from.grh.hop_limit;
  to.traffic_class = from.grh.traffic_class;
  to.flow_label = from.grh.flow_label;
  return to;
}

}  // namespace

init_attributes to_init(const ibv_qp_attr& from) noexcept {
  return {.port = from.port_num, .pkey_index = from.pkey_index};
}

verbs::rtr_attributes to_rtr(const ibv_qp_attr& from, const parameters& own) noexcept {
  verbs::rtr_attributes to;
  to.peer = to_address_vector(from.ah_attr);
  to.path_mtu = from.path_mtu;
  to.dest_qpn = from.dest_qp_num;
  to.rq_psn = from.rq_psn;
  to.dest_rd_atomic_max = std::min(from.max_dest_rd_atomic, own.responder_resources);
  return to;
}

verbs::rts_attributes to_rts(const ibv_qp_attr& from, const parameters& own) noexcept {
  verbs::rts_attributes to;
  to.sq_psn = from.sq_psn;
  to.rd_atomic_max = std::min(from.max_rd_atomic, own.initiator_depth);
  to.timeout = from.timeout;
  to.retry_cnt = from.retry_cnt;
  to.rnr_retry = std::min(from.rnr_retry, rnr_retry_max);
  return to;
}

}  // namespace cordma::cm
