#include "raw_verbs.hpp"

#include <cordma/base/error.hpp>
#include <cordma/verbs/gid.hpp>

#include <stdexcept>
#include <string>

namespace support::raw {

using namespace cordma;

void check(int rc, const char* call) {
  if (rc != 0) throw error{errno_failure(rc, call)};
}

void fail(const ibv_wc& wc) {
  throw std::runtime_error{std::string{"raw verbs: "} + ibv_wc_status_str(wc.status)};
}

void fail_to_poll() { throw std::runtime_error{"ibv_poll_cq failed"}; }

void connect(verbs::context& ctx, const verbs::port_info& port, verbs::queue_pair& qp,
             std::uint32_t peer_num, std::uint8_t min_rnr_timer, std::uint8_t rnr_retry) {
  const verbs::gid_entry gid = verbs::choose_gid(ctx.gid_table(port.number));
  qp.to_init(
      port.number, 0,
      verbs::access::remote_read | verbs::access::remote_write | verbs::access::remote_atomic);
  qp.to_rtr({.peer = verbs::address_vector::by_gid(gid.gid, gid.index, port.lid),
             .path_mtu = port.mtu_active,
             .dest_qpn = peer_num,
             .dest_rd_atomic_max = ctx.limits().qp_rd_atom_max,
             .min_rnr_timer = min_rnr_timer});
  qp.to_rts({.rd_atomic_max = ctx.limits().qp_init_rd_atom_max, .rnr_retry = rnr_retry});
}

pair::pair(verbs::context& ctx, const verbs::port_info& port, verbs::protection_domain& pd,
           const verbs::queue_pair_capabilities& capabilities)
    // Two queue pairs, two directions, and what a device rounds up.
    : cq{ctx, 4 * (capabilities.send_wr_max + capabilities.recv_wr_max)},
      a{pd, cq, cq, capabilities},
      b{pd, cq, cq, capabilities} {
  connect(ctx, port, a, b.num());
  connect(ctx, port, b, a.num());
}

}  // namespace support::raw
