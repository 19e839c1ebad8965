#include "loopback.hpp"

#include <array>
#include <stdexcept>

namespace bench {
namespace {

using namespace cordma;

constexpr verbs::access everything = verbs::access::local_write | verbs::access::remote_read |
                                     verbs::access::remote_write | verbs::access::remote_atomic;
constexpr verbs::queue_pair_capabilities capabilities{.send_wr_max = loopback::depth,
                                                      .recv_wr_max = loopback::depth};
// Two queue pairs, two directions, and what a device rounds up.
constexpr unsigned cq_depth = 8 * loopback::depth;

void connect(verbs::context& context, verbs::queue_pair& from, verbs::queue_pair& to) {
  const verbs::port_info port = context.active_port();
  const auto table = context.gid_table(port.number);
  const verbs::gid_entry gid = verbs::choose_gid(table).entry;
  from.to_init(port.number, 0, everything);
  from.to_rtr({.peer = port.is_ethernet() ? verbs::address_vector::by_gid(gid.gid, gid.index)
                                          : verbs::address_vector::by_lid(port.lid),
               .path_mtu = port.mtu_active,
               .dest_qpn = to.num(),
               .dest_rd_atomic_max = std::min(16u, context.limits().qp_rd_atom_max)});
  from.to_rts({.rd_atomic_max = std::min(16u, context.limits().qp_init_rd_atom_max)});
}

void check(int rc, const char* call) {
  if (rc != 0) throw error{errno_failure(rc, call)};
}

}  // namespace

loopback::loopback(std::string_view device)
    : context{device},
      local{allocate_pages(pd, buffer_bytes, everything)},
      remote{allocate_pages(pd, buffer_bytes, everything)},
      driver{executor, context, {.depth = cq_depth, .mode = completion_mode::busy}},
      a{driver, pd, capabilities, context.active_port().message_max_bytes},
      b{driver, pd, capabilities, context.active_port().message_max_bytes},
      raw_cq{context, cq_depth},
      raw_a{pd, raw_cq, raw_cq, capabilities},
      raw_b{pd, raw_cq, raw_cq, capabilities} {
  // Receivers first: a queue pair must be ready to receive before its peer sends.
  connect(context, a.verbs(), b.verbs());
  connect(context, b.verbs(), a.verbs());
  connect(context, raw_a, raw_b);
  connect(context, raw_b, raw_a);
}

loopback::reaped loopback::reap_raw() {
  std::array<ibv_wc, 32> entries;
  const int n = raw_cq.poll(entries);
  reaped count;
  for (int i = 0; i < n; ++i) {
    if (entries[std::size_t(i)].status != IBV_WC_SUCCESS) {
      throw std::runtime_error{ibv_wc_status_str(entries[std::size_t(i)].status)};
    }
    ++((entries[std::size_t(i)].opcode & IBV_WC_RECV) != 0 ? count.receives : count.sends);
  }
  return count;
}

void loopback::run_raw(ibv_send_wr& wr, std::uint64_t n, std::uint32_t in_flight_max) {
  std::uint64_t posted = 0;
  for (std::uint64_t ended = 0; ended < n; ended += reap_raw().sends) {
    while (posted < n && posted - ended < in_flight_max) {
      ibv_send_wr* bad = nullptr;
      check(raw_a.post_send(&wr, &bad), "ibv_post_send");
      ++posted;
    }
  }
}

void loopback::run_raw_receiving(ibv_send_wr& wr, ibv_recv_wr& receive, std::uint64_t n,
                                 std::uint32_t in_flight_max) {
  std::uint64_t posted = 0, sent = 0, received = 0;
  while (sent < n || received < n) {
    while (posted < n && posted - std::min(sent, received) < in_flight_max) {
      ibv_recv_wr* bad_receive = nullptr;
      check(raw_b.post_recv(&receive, &bad_receive), "ibv_post_recv");
      ibv_send_wr* bad = nullptr;
      check(raw_a.post_send(&wr, &bad), "ibv_post_send");
      ++posted;
    }
    const reaped count = reap_raw();
    sent += count.sends;
    received += count.receives;
  }
}

}  // namespace bench
