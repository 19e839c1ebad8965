#include "raw_pair.hpp"

#include <cordma/verbs/gid.hpp>

#include <algorithm>
#include <stdexcept>
#include <string>

namespace perf {
namespace {

using namespace cordma;
using verbs::access;

constexpr std::uint64_t receive_bit = 1;
constexpr std::uint64_t far_bit = 2;
constexpr std::size_t poll_batch = 32;
constexpr std::uint32_t spare_requests = 16;

void check(int rc, const char* call) {
  if (rc != 0) throw error{errno_failure(rc, call)};
}

/// Receives on each side: one for each operation, and as many that are on their way back.
std::uint32_t receive_count(const job& what) {
  return is_echo(what.op) ? 2 * what.depth : receives(what);
}

verbs::queue_pair_capabilities capabilities(const job& what) {
  verbs::queue_pair_capabilities wanted;
  wanted.send_wr_max = std::max(wanted.send_wr_max, 2 * what.depth + spare_requests);
  wanted.recv_wr_max = std::max(wanted.recv_wr_max, receive_count(what));
  return wanted;
}

/// Two queue pairs, two directions, and what a device rounds up.
unsigned queue_depth(const job& what) {
  const auto wanted = capabilities(what);
  return 4 * (wanted.send_wr_max + wanted.recv_wr_max);
}

ibv_wr_opcode opcode_of(operation op) {
  switch (op) {
    case operation::write: return IBV_WR_RDMA_WRITE;
    case operation::read: return IBV_WR_RDMA_READ;
    case operation::write_imm: return IBV_WR_RDMA_WRITE_WITH_IMM;
    case operation::cas: return IBV_WR_ATOMIC_CMP_AND_SWP;
    case operation::faa: return IBV_WR_ATOMIC_FETCH_AND_ADD;
    default: return IBV_WR_SEND;
  }
}

}  // namespace

raw_pair::end::end(runtime& rt, verbs::completion_queue& cq, const job& what, std::uint64_t n)
    : memory{rt.memory(access::local_write | access::remote_read | access::remote_write |
                       access::remote_atomic)
                 .allocate_zeroed(perf::slots(what) * what.size_bytes)},
      qp{rt.protection_domain(), cq, cq, capabilities(what)},
      number{n},
      size_bytes{what.size_bytes},
      slots{perf::slots(what)} {
  piece.length = std::uint32_t(size_bytes);
  piece.lkey = memory.slice().lkey();
}

void raw_pair::end::post_send(ibv_send_wr& wr) {
  piece.addr = reinterpret_cast<std::uint64_t>(memory.bytes().data()) + next_slot * size_bytes;
  wr.sg_list = &piece;
  wr.num_sge = 1;
  wr.wr_id = number;
  ibv_send_wr* bad = nullptr;
  check(ibv_post_send(qp.native_handle(), &wr, &bad), "ibv_post_send");
  if (++next_slot == slots) next_slot = 0;
}

void raw_pair::end::post_receive() {
  ibv_sge into = piece;
  into.addr = reinterpret_cast<std::uint64_t>(memory.bytes().data()) + next_receive * size_bytes;
  if (++next_receive == slots) next_receive = 0;
  ibv_recv_wr wr{.wr_id = number | receive_bit, .next = nullptr, .sg_list = &into, .num_sge = 1};
  ibv_recv_wr* bad = nullptr;
  check(ibv_post_recv(qp.native_handle(), &wr, &bad), "ibv_post_recv");
}

raw_pair::raw_pair(runtime& rt, const job& what)
    : what_{what},
      cq_{rt.context(), queue_depth(what)},
      near_{rt, cq_, what, 0},
      far_{rt, cq_, what, far_bit},
      starts_(what.depth) {
  connect(rt, near_, far_);
  connect(rt, far_, near_);
  receives_ = receive_count(what);
  for (std::uint32_t i = 0; i < receives_; ++i) {
    far_.post_receive();
    if (is_echo(what.op)) near_.post_receive();
  }
  fill_request();
}

void raw_pair::connect(runtime& rt, end& one, const end& other) {
  const verbs::port_info port = rt.context().active_port();
  const verbs::gid_entry gid = verbs::choose_gid(rt.context().gid_table(port.number)).entry;
  one.qp.to_init(port.number, 0,
                 access::remote_read | access::remote_write | access::remote_atomic);
  one.qp.to_rtr({.peer = verbs::address_vector::by_gid(gid.gid, gid.index, port.lid),
                 .path_mtu = port.mtu_active,
                 .dest_qpn = other.qp.num(),
                 .dest_rd_atomic_max = rt.context().limits().qp_rd_atom_max});
  one.qp.to_rts({.rd_atomic_max = rt.context().limits().qp_init_rd_atom_max});
}

void raw_pair::fill_request() {
  request_.opcode = opcode_of(what_.op);
  request_.send_flags = IBV_SEND_SIGNALED;
  // What ours sends inline is inline here.
  const bool can_be_inline = what_.op != operation::read && !is_atomic(what_.op);
  if (can_be_inline && what_.size_bytes <= near_.qp.capabilities().inline_max) {
    request_.send_flags |= IBV_SEND_INLINE;
  }
  answer_ = request_;
  const remote_mr_slice to = far_.memory.remote_slice();
  if (is_atomic(what_.op)) {
    request_.wr.atomic = {.remote_addr = to.address(),
                          .compare_add = what_.op == operation::faa ? 1u : 0u,
                          .swap = 0,
                          .rkey = to.rkey()};
  } else {
    request_.wr.rdma = {.remote_addr = to.address(), .rkey = to.rkey()};
  }
}

bool raw_pair::has_room() const noexcept {
  const bool takes_receive = uses_receives(what_.op) || is_echo(what_.op);
  return in_flight_ < what_.depth && (!takes_receive || receives_ > 0);
}

void raw_pair::post_next() {
  const std::uint64_t offset = near_.next_slot * what_.size_bytes;
  const std::uint64_t to = far_.memory.remote_slice().address() + offset;
  (is_atomic(what_.op) ? request_.wr.atomic.remote_addr : request_.wr.rdma.remote_addr) = to;
  near_.post_send(request_);
  ++in_flight_;
  ++requests_;
  if (receives_ > 0) --receives_;
}

void raw_pair::ended(meter& m) {
  --in_flight_;
  m.record(starts_[first_]);
  if (++first_ == starts_.size()) first_ = 0;
}

void raw_pair::take(const ibv_wc& entry, meter& m) {
  if (entry.status != IBV_WC_SUCCESS) {
    throw std::runtime_error{std::string{"raw verbs: "} + ibv_wc_status_str(entry.status)};
  }
  if ((entry.wr_id & receive_bit) == 0) {
    --requests_;
    if (entry.wr_id == near_.number && !is_echo(what_.op)) ended(m);
  } else if ((entry.wr_id & far_bit) != 0) {
    far_.post_receive();
    ++receives_;
    if (!is_echo(what_.op)) return;
    far_.post_send(answer_);
    ++requests_;
  } else {
    near_.post_receive();
    ended(m);
  }
}

void raw_pair::run(meter& m) {
  const std::uint32_t receives_before = receives_;
  clock::time_point start = clock::now();
  for (;;) {
    while (has_room() && m.takes_another()) {
      starts_[(first_ + in_flight_) % starts_.size()] = start;
      post_next();
    }
    // To the last receive as well: the next round begins like this one.
    const bool is_idle = requests_ == 0 && in_flight_ == 0 && receives_ >= receives_before;
    if (is_idle) return;
    std::array<ibv_wc, poll_batch> entries;
    const int n = ibv_poll_cq(cq_.native_handle(), int(entries.size()), entries.data());
    if (n < 0) throw std::runtime_error{"ibv_poll_cq failed"};
    for (int i = 0; i < n; ++i) take(entries[std::size_t(i)], m);
    if (n > 0) start = m.now();
  }
}

}  // namespace perf
