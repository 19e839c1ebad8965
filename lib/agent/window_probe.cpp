#include "window_probe.hpp"

#include "io/host_calls.hpp"

#include <cordma/base/error.hpp>
#include <cordma/verbs/completion_queue.hpp>
#include <cordma/verbs/memory_region.hpp>
#include <cordma/verbs/queue_pair.hpp>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>

namespace cordma {
namespace {

/// A queue pair whose peer is silent says so after 1.9 s (`verbs::rts_attributes`): a device that
/// said nothing by then says nothing.
constexpr std::chrono::seconds answer_time_max{3};

/// The window is bound to the first registered part; the second lies just beyond; READs land in the
/// third.
constexpr std::uint32_t part_bytes = 64;
enum part : std::size_t { bound, beyond, landing, part_count };

void connect(verbs::queue_pair& qp, const verbs::queue_pair& peer, const verbs::port_info& port,
             const verbs::gid_entry& gid) {
  qp.to_init(port.number, 0, verbs::access::remote_read);
  qp.to_rtr({.peer = port.is_ethernet() ? verbs::address_vector::by_gid(gid.gid, gid.index)
                                        : verbs::address_vector::by_lid(port.lid),
             .path_mtu = port.mtu_active,
             .dest_qpn = peer.num()});
  qp.to_rts({});
}

/// Posts one request and waits for its end, however it ends. `what` tells it in a failure.
ibv_wc outcome_of(ibv_send_wr wr, verbs::queue_pair& qp, verbs::completion_queue& cq,
                  cordma::executor& executor, const char* what) {
  wr.send_flags = IBV_SEND_SIGNALED;
  ibv_send_wr* bad = nullptr;
  if (const int rc = qp.post_send(&wr, &bad); rc != 0) {
    throw error{errno_failure(std::abs(rc), "ibv_post_send", {"qp", qp.num()}, what)};
  }
  const time_point deadline = executor.after(answer_time_max);
  std::array<ibv_wc, 1> wc{};
  int n = cq.poll(wc);
  for (; n == 0 && executor.now() < deadline; n = cq.poll(wc)) executor.reactor().host().pause();
  if (n == 1) return wc[0];
  throw error{{.code = n == 0 ? errc::timed_out : errc::device_failed,
               .call = "ibv_poll_cq",
               .object = {"qp", qp.num()},
               .detail = what}};
}

void require_success(const ibv_wc& wc, const char* what) {
  if (wc.status == IBV_WC_SUCCESS) return;
  throw error{{.code = wc_errc(wc.status),
               .call = "ibv_poll_cq",
               .object = {"qp", wc.qp_num},
               .detail = what,
               .vendor = wc.vendor_err}};
}

}  // namespace

bool checks_window_ranges(cordma::executor& executor, verbs::context& ctx,
                          verbs::protection_domain& pd, const verbs::port_info& port,
                          const verbs::gid_entry& gid) {
  // The last is destroyed first: the window before its registration, and the memory at the end.
  std::array<std::byte, part_count * part_bytes> memory{};
  const verbs::memory_region region{pd, memory.data(), memory.size(),
                                    verbs::access::local_write | verbs::access::mw_bind};
  const auto address_of = [&](part p) {
    return reinterpret_cast<std::uint64_t>(memory.data() + p * part_bytes);
  };
  constexpr verbs::queue_pair_capabilities one_request{
      .send_wr_max = 1, .recv_wr_max = 1, .send_sge_max = 1, .recv_sge_max = 1, .inline_max = 0};
  verbs::completion_queue cq{ctx, 1};
  // Two queue pairs: one that refuses a READ breaks, and would flush a READ of its own before.
  verbs::queue_pair owner{pd, cq, cq, one_request};
  verbs::queue_pair reader{pd, cq, cq, one_request};
  connect(owner, reader, port, gid);
  connect(reader, owner, port, gid);
  verbs::memory_window window{pd};

  constexpr const char* binding = "trying what windows check: a bind to a part of a registration";
  ibv_send_wr bind{};
  bind.opcode = IBV_WR_BIND_MW;
  bind.bind_mw = {.mw = window.native_handle(),
                  .rkey = window.next_rkey(),
                  .bind_info = {.mr = region.native_handle(),
                                .addr = address_of(part::bound),
                                .length = part_bytes,
                                .mw_access_flags = unsigned(verbs::access::remote_read)}};
  require_success(outcome_of(bind, owner, cq, executor, binding), binding);
  window.bound(bind.bind_mw.rkey);

  const auto read = [&](part p, const char* what) {
    ibv_sge into{address_of(part::landing), part_bytes, region.lkey()};
    ibv_send_wr wr{};
    wr.opcode = IBV_WR_RDMA_READ;
    wr.sg_list = &into;
    wr.num_sge = 1;
    wr.wr.rdma = {.remote_addr = address_of(p), .rkey = window.rkey()};
    return outcome_of(wr, reader, cq, executor, what);
  };
  constexpr const char* inside = "trying what windows check: a READ of what the window is bound to";
  require_success(read(part::bound, inside), inside);
  constexpr const char* outside = "trying what windows check: a READ just beyond the window";
  const ibv_wc wc = read(part::beyond, outside);
  if (wc.status == IBV_WC_REM_ACCESS_ERR) return true;
  require_success(wc, outside);
  return false;
}

}  // namespace cordma
