#include "raw_pair.hpp"

#include "datagrams.hpp"
#include "queue/post_chain.hpp"

#include <algorithm>
#include <utility>

namespace perf {
namespace {

using namespace cordma;
using verbs::access;
namespace raw = support::raw;

constexpr std::uint64_t receive_bit = 1;
constexpr std::uint64_t far_bit = 2;
constexpr std::uint32_t spare_requests = 16;
constexpr std::uint32_t qkey = 0x7662;

verbs::queue_pair_type type_of(const job& what) {
  if (what.op == operation::xrc) return verbs::queue_pair_type::xrc_initiator;
  return uses_datagrams(what.op) ? verbs::queue_pair_type::ud : transport_of(what.op);
}
std::size_t headroom_of(const job& what) { return uses_datagrams(what.op) ? sizeof(ibv_grh) : 0; }

/// Receives on each side: one for each operation, and as many that are on their way back.
std::uint32_t receive_count(const job& what) {
  return is_echo(what.op) ? 2 * what.depth : receives(what);
}

verbs::queue_pair_capabilities capabilities(const job& what) {
  verbs::queue_pair_capabilities wanted;
  if (what.path.inline_bytes) wanted.inline_max = *what.path.inline_bytes;
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
  switch (over_rc(op)) {
    case operation::write: return IBV_WR_RDMA_WRITE;
    case operation::read: return IBV_WR_RDMA_READ;
    case operation::write_imm: return IBV_WR_RDMA_WRITE_WITH_IMM;
    case operation::cas: return IBV_WR_ATOMIC_CMP_AND_SWP;
    case operation::faa: return IBV_WR_ATOMIC_FETCH_AND_ADD;
    case operation::atomic_write: return IBV_WR_ATOMIC_WRITE;
    default: return IBV_WR_SEND;
  }
}

}  // namespace

raw_pair::end::end(runtime& rt, verbs::completion_queue& cq, const job& what, std::uint64_t n,
                   verbs::xrc_domain* domain)
    : memory{rt.memory(access::local_write | access::remote_read | access::remote_write |
                       access::remote_atomic)
                 .allocate_zeroed(perf::slots(what) * (what.size_bytes + headroom_of(what)))},
      qp{domain != nullptr ? verbs::queue_pair{*domain}
                           : verbs::queue_pair{rt.protection_domain(), cq, cq, capabilities(what),
                                               nullptr, nullptr, type_of(what)}},
      number{n},
      size_bytes{what.size_bytes},
      headroom{headroom_of(what)},
      slots{perf::slots(what)},
      inline_max{qp.capabilities().inline_max} {
  if (domain != nullptr)
    inbox.emplace(rt.protection_domain(), *domain, cq,
                  verbs::shared_receive_queue_capabilities{.wr_max = receive_count(what)});
}

raw_pair::end::~end() {
  if (group) qp.detach(*group);
}

void raw_pair::end::lead_to(runtime& rt, const end& other) {
  const verbs::port_info port = rt.context().active_port();
  const verbs::gid_entry own = verbs::choose_gid(rt.context().gid_table(port.number));
  const ibv_gid to = other.group.value_or(own.gid);
  const bool is_global = port.is_ethernet() || other.group;
  handle.emplace(rt.protection_domain(), port.number,
                 is_global ? verbs::address_vector::by_gid(to, own.index, port.lid)
                           : verbs::address_vector::by_lid(port.lid));
  peer_qpn = other.group ? datagram_address::multicast_qpn : other.qp.num();
}

void raw_pair::end::join(runtime& rt) {
  const verbs::port_info port = rt.context().active_port();
  const verbs::gid_entry own = verbs::choose_gid(rt.context().gid_table(port.number));
  const ibv_gid mgid = make_group(own.gid);
  if (own.netdev_ifindex != 0) ip_group = detail::join_ip_group(mgid, own.netdev_ifindex);
  qp.attach(mgid);
  group = mgid;
}

ibv_sge raw_pair::end::piece(std::size_t slot, std::size_t bytes) const noexcept {
  return raw::piece(memory.bytes().data() + slot * (size_bytes + headroom), bytes,
                    memory.slice().lkey());
}

void raw_pair::end::post_send(ibv_wr_opcode opcode, const raw::remote& to) {
  raw::request what{opcode, piece(next_slot, size_bytes), to, inline_max};
  if (handle)
    what.wr.wr.ud = {.ah = handle->native_handle(), .remote_qpn = peer_qpn, .remote_qkey = qkey};
  if (peer_inbox != 0) what.wr.qp_type.xrc.remote_srqn = peer_inbox;
  what.wr.wr_id = number;
  if (opcode == IBV_WR_ATOMIC_WRITE) {
    ibv_send_wr* bad = nullptr;
    raw::check(detail::post_chain(qp.native_handle(), &what.wr, &bad), "ibv_wr_atomic_write");
  } else {
    raw::post(qp, what);
  }
  if (++next_slot == slots) next_slot = 0;
}

void raw_pair::end::post_receive() {
  raw::receive what{piece(next_receive, size_bytes + headroom), number | receive_bit};
  if (inbox) {
    ibv_recv_wr* bad = nullptr;
    raw::check(inbox->post(&what.wr, &bad), "ibv_post_srq_recv");
  } else {
    raw::post(qp, std::move(what));
  }
  if (++next_receive == slots) next_receive = 0;
}

verbs::xrc_domain* raw_pair::domain_for(runtime& rt, const job& what) {
  return what.op == operation::xrc ? &domain_.emplace(rt.context()) : nullptr;
}

raw_pair::raw_pair(runtime& rt, const job& what)
    : what_{what},
      cq_{rt.context(), queue_depth(what)},
      near_{rt, cq_, what, 0},
      far_{rt, cq_, what, far_bit, domain_for(rt, what)},
      starts_(what.depth) {
  const verbs::port_info port = rt.context().active_port();
  if (uses_datagrams(what.op)) {
    for (end* one : {&near_, &far_}) one->qp.to_ud_rts({.port = port.number, .qkey = qkey});
    if (what.op == operation::multicast) far_.join(rt);
    near_.lead_to(rt, far_);
    far_.lead_to(rt, near_);
  } else {
    raw::connect(rt.context(), port, near_.qp, far_.qp.num());
    raw::connect(rt.context(), port, far_.qp, near_.qp.num());
  }
  if (far_.inbox) near_.peer_inbox = far_.inbox->num();
  receives_ = receive_count(what);
  for (std::uint32_t i = 0; i < receives_; ++i) {
    far_.post_receive();
    if (is_echo(what.op)) near_.post_receive();
  }
}

bool raw_pair::has_room() const noexcept {
  const bool takes_receive = uses_receives(what_.op) || is_echo(what_.op);
  return in_flight_ < what_.depth && (!takes_receive || receives_ > 0);
}

void raw_pair::post_next() {
  const remote_mr_slice to = far_.memory.remote_slice();
  near_.post_send(opcode_of(what_.op),
                  {to.address() + near_.next_slot * what_.size_bytes, to.rkey()});
  ++in_flight_;
  ++requests_;
  if (receives_ > 0) --receives_;
}

void raw_pair::ended(meter& m) {
  --in_flight_;
  m.record(starts_[first_]);
  if (++first_ == starts_.size()) first_ = 0;
}

void raw_pair::take(const ibv_wc& wc, meter& m) {
  if ((wc.wr_id & receive_bit) == 0) {
    --requests_;
    if (wc.wr_id == near_.number && !is_echo(what_.op)) ended(m);
  } else if ((wc.wr_id & far_bit) != 0) {
    far_.post_receive();
    ++receives_;
    if (!is_echo(what_.op)) return;
    far_.post_send(IBV_WR_SEND, {});
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
    const std::size_t n = raw::poll(cq_, [&](const ibv_wc& wc) { take(wc, m); });
    if (n > 0) {
      start = m.now();
    } else if (is_unreliable(what_.op) && requests_ == 0 && clock::now() - start > lost_after) {
      receives_ = receives_before;  // Messages were lost, and their receives are posted still.
    }
  }
}

}  // namespace perf
