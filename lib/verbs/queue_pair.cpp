#include <cordma/verbs/queue_pair.hpp>

#include "failures.hpp"
#include "queue_pair_attributes.hpp"
#include "queue_pair_state.hpp"
#include "shared_receive_queue.hpp"

#include <cordma/detail/base/assert.hpp>

#include <cerrno>
#include <string>

namespace cordma::verbs {
namespace {

using detail::detail_text;
using text = fixed_text<240>;

bool is_given(ibv_pd* pd, ibv_qp_init_attr attributes, std::uint32_t inline_max) noexcept {
  attributes.cap.max_inline_data = inline_max;
  ibv_qp* const qp = ibv_create_qp(pd, &attributes);
  return qp != nullptr && ibv_destroy_qp(qp) == 0;
}

/// Makes a queue pair that takes ATOMIC WRITEs, which only ibv_wr_atomic_write(3) posts. Null: the
/// driver makes none.
ibv_qp* create_extended(ibv_pd* pd, ibv_qp_init_attr& attributes) noexcept {
  ibv_qp_init_attr_ex wanted{};
  wanted.qp_context = attributes.qp_context;
  wanted.send_cq = attributes.send_cq;
  wanted.recv_cq = attributes.recv_cq;
  wanted.srq = attributes.srq;
  wanted.cap = attributes.cap;
  wanted.qp_type = attributes.qp_type;
  wanted.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  wanted.pd = pd;
  wanted.send_ops_flags = IBV_QP_EX_WITH_ATOMIC_WRITE;
  ibv_qp* const qp = ibv_create_qp_ex(pd->context, &wanted);
  if (qp != nullptr) attributes.cap = wanted.cap;
  return qp;
}

/// Names the largest inline_max that the device would give, when inline_max is what it refuses.
/// Devices report the limit only by refusing, so the function makes a queue pair for each guess.
void check_inline_max(ibv_pd* pd, const ibv_qp_init_attr& refused) {
  std::uint32_t given = 0;
  std::uint32_t too_large = refused.cap.max_inline_data;
  if (too_large == 0 || !is_given(pd, refused, given)) return;
  while (too_large - given > 1) {
    const std::uint32_t guess = given + (too_large - given) / 2;
    (is_given(pd, refused, guess) ? given : too_large) = guess;
  }
  detail::check_range("ibv_create_qp", "inline_max", refused.cap.max_inline_data, 0, given,
                      "what the device gives with the other capabilities,");
}

/// Returns true if a queue pair of this type answers requests as over RC.
bool is_responder(queue_pair_type type) noexcept {
  return type == queue_pair_type::rc || type == queue_pair_type::xrc_target;
}
/// Returns true if it repeats requests until they are answered.
bool is_requester(queue_pair_type type) noexcept {
  return type == queue_pair_type::rc || type == queue_pair_type::xrc_initiator;
}

/// Returns the approximate size of a queue pair's queues; drivers round up.
std::uint64_t queue_bytes(const queue_pair_capabilities& wanted) noexcept {
  constexpr std::uint64_t head = 64;
  const std::uint64_t send = head + sizeof(ibv_sge) * wanted.send_sge_max + wanted.inline_max;
  return send * wanted.send_wr_max + sizeof(ibv_sge) * wanted.recv_sge_max * wanted.recv_wr_max;
}

[[noreturn]] void throw_cannot_create(int error, const queue_pair_capabilities& wanted,
                                      const device_limits& limits) {
  const std::string subject = std::to_string(wanted.send_wr_max) + " sends, " +
                              std::to_string(wanted.recv_wr_max) + " receives";
  detail::throw_errno(
      error, "ibv_create_qp",
      detail::may_be_memlock(error)
          ? detail::lack_text(error, subject, queue_bytes(wanted), limits.qp_max, "queue pairs")
          : detail_text("%s of %u and %u slices, inline_max %u: each is within the "
                        "device's limits, together they are not; lower one of them",
                        subject.c_str(), wanted.send_sge_max, wanted.recv_sge_max,
                        wanted.inline_max));
}

ibv_qp_attr query(ibv_qp* qp) {
  ibv_qp_attr attributes{};
  ibv_qp_init_attr initial{};
  if (const int rc = ibv_query_qp(qp, &attributes, IBV_QP_STATE, &initial); rc != 0) {
    detail::throw_errno(rc, "ibv_query_qp", {}, {"qp", qp->qp_num});
  }
  return attributes;
}

/// Returns which attribute the port refuses; empty when it would accept them all.
text port_diagnosis(ibv_qp* qp, const ibv_qp_attr& a, int mask) noexcept {
  ibv_port_attr port{};
  if (a.port_num == 0 || ibv_query_port(qp->context, a.port_num, &port) != 0) return {};
  if ((mask & IBV_QP_PKEY_INDEX) != 0 && a.pkey_index >= port.pkey_tbl_len) {
    return detail_text("pkey_index %u is outside the port's table of %u", unsigned{a.pkey_index},
                       unsigned{port.pkey_tbl_len});
  }
  if ((mask & IBV_QP_PATH_MTU) != 0 && a.path_mtu > port.active_mtu) {
    return detail_text("path_mtu %u exceeds the port's active MTU of %u", bytes_of(a.path_mtu),
                       bytes_of(port.active_mtu));
  }
  if ((mask & IBV_QP_AV) == 0) return {};
  if (a.ah_attr.is_global == 0) {
    if (port.link_layer != IBV_LINK_LAYER_ETHERNET) return {};
    return "the peer is given by LID, but the port is Ethernet (RoCE): give its GID";
  }
  const unsigned index = a.ah_attr.grh.sgid_index;
  ibv_gid_entry entry{};
  if (int(index) >= port.gid_tbl_len) {
    return detail_text("gid_index %u is outside the port's table of %d", index, port.gid_tbl_len);
  }
  if (ibv_query_gid_ex(qp->context, a.port_num, index, &entry, 0) != 0) {
    return detail_text("gid_index %u of port %u holds no GID", index, unsigned{a.port_num});
  }
  return {};
}

text diagnosis(ibv_qp* qp, int error, queue_pair_state to, const ibv_qp_attr& a, int mask) {
  const bool connects = (mask & IBV_QP_AV) != 0 && a.ah_attr.is_global != 0;
  if (connects && detail::is_no_route(error)) return detail::no_route_text(a.ah_attr.grh);
  if (error == ENOMEM) return detail::memlock_text("queue pair");
  if (error != EINVAL) return detail_text("to %s", to_string(to));
  if (const text found = port_diagnosis(qp, a, mask); !found.empty()) return found;
  const auto expected = queue_pair_state(qp->state);  // Read before the query, which overwrites it.
  const auto now = queue_pair_state(query(qp).qp_state);
  if (now != expected) {
    return detail_text("to %s: the device has moved it from %s to %s on its own", to_string(to),
                       to_string(expected), to_string(now));
  }
  if (connects) {
    return detail_text(
        "to %s: every attribute is in range, so the device refuses the peer's GID %s",
        to_string(to), to_string(a.ah_attr.grh.dgid).c_str());
  }
  return detail_text("to %s: every attribute is in range, yet the device refuses one",
                     to_string(to));
}

}  // namespace

void queue_pair::destroyer::operator()(ibv_qp* qp) const noexcept {
  const int rc = ibv_destroy_qp(qp);  // Another errno: the device is gone, which is nobody's bug.
  CORDMA_ASSERT(rc != EBUSY, "queue pair destroyed while in use");
}

queue_pair::queue_pair(protection_domain& pd, completion_queue& send_cq, completion_queue& recv_cq,
                       const queue_pair_capabilities& asked, void* qp_context,
                       shared_receive_queue* srq, queue_pair_type type)
    : limits_{pd.limits()} {
  check(type);
  if (type == queue_pair_type::xrc_initiator) check_xrc("ibv_create_qp", limits_);
  queue_pair_capabilities wanted = asked;
  const bool has_own = srq == nullptr && type != queue_pair_type::xrc_initiator;
  if (!has_own) wanted.recv_wr_max = wanted.recv_sge_max = 1;
  check(wanted, limits_);
  if (!has_own) wanted.recv_wr_max = wanted.recv_sge_max = 0;
  ibv_qp_init_attr attributes{};
  attributes.qp_context = qp_context;
  attributes.send_cq = send_cq.native_handle();
  attributes.recv_cq = recv_cq.native_handle();
  attributes.srq = srq != nullptr ? srq->native_handle() : nullptr;
  attributes.cap = {.max_send_wr = wanted.send_wr_max,
                    .max_recv_wr = wanted.recv_wr_max,
                    .max_send_sge = wanted.send_sge_max,
                    .max_recv_sge = wanted.recv_sge_max,
                    .max_inline_data = wanted.inline_max};
  attributes.qp_type = ibv_qp_type(type);
  has_atomic_write_ = limits_.atomic_write && type == queue_pair_type::rc;
  if (has_atomic_write_) qp_.reset(create_extended(pd.queues_handle(), attributes));
  if (qp_ == nullptr && (!has_atomic_write_ || errno == EOPNOTSUPP || errno == ENOSYS)) {
    has_atomic_write_ = false;
    qp_.reset(ibv_create_qp(pd.queues_handle(), &attributes));
  }
  if (qp_ == nullptr) {
    const int error_number = errno;
    if (error_number == EINVAL) check_inline_max(pd.queues_handle(), attributes);
    throw_cannot_create(error_number, wanted, limits_);
  }
  caps_ = {.send_wr_max = attributes.cap.max_send_wr,
           .recv_wr_max = has_own ? attributes.cap.max_recv_wr : 0,
           .send_sge_max = attributes.cap.max_send_sge,
           .recv_sge_max = has_own ? attributes.cap.max_recv_sge : 0,
           .inline_max = attributes.cap.max_inline_data};
}

queue_pair::queue_pair(xrc_domain& domain, void* qp_context) : limits_{domain.limits()} {
  ibv_qp_init_attr_ex attributes{};
  attributes.qp_context = qp_context;
  attributes.qp_type = IBV_QPT_XRC_RECV;
  attributes.comp_mask = IBV_QP_INIT_ATTR_XRCD;
  attributes.xrcd = domain.native_handle();
  qp_.reset(ibv_create_qp_ex(domain.native_handle()->context, &attributes));
  caps_ = {
      .send_wr_max = 0, .recv_wr_max = 0, .send_sge_max = 0, .recv_sge_max = 0, .inline_max = 0};
  if (qp_ == nullptr)
    detail::throw_errno(
        errno, "ibv_create_qp_ex",
        detail::lack_text(errno, "an XRC target", 0, limits_.qp_max, "queue pairs"));
}

queue_pair_state queue_pair::query_state() const {
  return queue_pair_state(query(qp_.get()).qp_state);
}

void queue_pair::modify(queue_pair_state to, ibv_qp_attr& attributes, int mask) {
  attributes.qp_state = ibv_qp_state(to);
  // The diagnosis needs it; the kernel reads it only where `mask` says so.
  attributes.port_num = port_;
  const int rc = ibv_modify_qp(qp_.get(), &attributes, mask | IBV_QP_STATE);
  if (rc == 0) return;
  detail::throw_errno(rc, "ibv_modify_qp", diagnosis(qp_.get(), rc, to, attributes, mask),
                      {"qp", num()});
}

void queue_pair::check_type(bool wants_datagrams) const {
  if ((type() == queue_pair_type::ud) == wants_datagrams) return;
  detail::throw_failure(
      errc::not_supported, "ibv_modify_qp",
      wants_datagrams ? detail_text("to_ud_rts is for UD; the queue pair is %s", to_string(type()))
                      : detail_text("a UD queue pair has no peer: to_ud_rts is its call"));
}

void queue_pair::to_init(std::uint8_t port, std::uint16_t pkey_index, access remote) {
  check_type(false);
  check_transition(state(), queue_pair_state::init);
  detail::check_range("ibv_modify_qp", "port", port, 1, limits_.port_count, "the device's");
  port_ = port;
  ibv_qp_attr attributes{};
  attributes.pkey_index = pkey_index;
  attributes.qp_access_flags = unsigned(remote);
  modify(queue_pair_state::init, attributes, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
}

void queue_pair::to_rtr(const rtr_attributes& a) {
  check_type(false);
  check_transition(state(), queue_pair_state::rtr);
  check(a, limits_);
  ibv_qp_attr attributes{};
  attributes.ah_attr = ah_of(a.peer, port_);
  attributes.path_mtu = a.path_mtu;
  attributes.dest_qp_num = a.dest_qpn;
  attributes.rq_psn = a.rq_psn;
  attributes.max_dest_rd_atomic = static_cast<std::uint8_t>(a.dest_rd_atomic_max);
  attributes.min_rnr_timer = a.min_rnr_timer;
  const int of_responder = IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
  modify(queue_pair_state::rtr, attributes,
         IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
             (is_responder(type()) ? of_responder : 0));
}

void queue_pair::to_rts(const rts_attributes& a) {
  check_type(false);
  check_transition(state(), queue_pair_state::rts);
  check(a, limits_);
  ibv_qp_attr attributes{};
  attributes.sq_psn = a.sq_psn;
  attributes.max_rd_atomic = static_cast<std::uint8_t>(a.rd_atomic_max);
  attributes.timeout = a.timeout;
  attributes.retry_cnt = a.retry_cnt;
  attributes.rnr_retry = a.rnr_retry;
  const bool has_retries = is_requester(type());
  const int of_requester = IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY;
  const bool has_timeout = type() != queue_pair_type::uc;
  modify(queue_pair_state::rts, attributes,
         IBV_QP_SQ_PSN | (has_timeout ? IBV_QP_TIMEOUT : 0) | (has_retries ? of_requester : 0));
  rd_atomic_max_ = has_retries ? a.rd_atomic_max : 0;
}

void queue_pair::to_ud_rts(const datagram_attributes& a) {
  check_type(true);
  check_transition(state(), queue_pair_state::init);
  check(a, limits_);
  port_ = a.port;
  rd_atomic_max_ = 0;
  ibv_qp_attr attributes{};
  attributes.pkey_index = a.pkey_index;
  attributes.qkey = a.qkey;
  modify(queue_pair_state::init, attributes, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY);
  modify(queue_pair_state::rtr, attributes, 0);
  attributes.sq_psn = a.sq_psn;
  modify(queue_pair_state::rts, attributes, IBV_QP_SQ_PSN);
}

void queue_pair::attach(const ibv_gid& group, std::uint16_t lid) {
  if (const int rc = ibv_attach_mcast(qp_.get(), &group, lid); rc != 0)
    detail::throw_errno(rc, "ibv_attach_mcast", detail_text("group %s", to_string(group).c_str()),
                        {"qp", num()});
}

void queue_pair::detach(const ibv_gid& group, std::uint16_t lid) {
  if (const int rc = ibv_detach_mcast(qp_.get(), &group, lid); rc != 0)
    detail::throw_errno(rc, "ibv_detach_mcast", detail_text("group %s", to_string(group).c_str()),
                        {"qp", num()});
}

void queue_pair::allow(access remote) {
  if (state() != queue_pair_state::rts) {
    detail::throw_failure(
        errc::illegal_transition, "ibv_modify_qp",
        detail_text("access to a queue pair in %s; in RTS it can be changed", to_string(state())));
  }
  ibv_qp_attr attributes{};
  attributes.qp_access_flags = unsigned(remote);
  modify(queue_pair_state::rts, attributes, IBV_QP_ACCESS_FLAGS);
}

void queue_pair::limit_rate(std::uint32_t kbps, std::uint32_t burst_bytes) {
  constexpr const char* call = "ibv_modify_qp_rate_limit";
  if ((limits_.rate_limited_types & (1u << unsigned(type()))) == 0) {
    detail::throw_failure(errc::not_supported, call,
                          detail_text("the device limits the rate of no %s queue pair: it needs "
                                      "packet pacing for that type (device_limits)",
                                      to_string(type())),
                          {"qp", num()});
  }
  if (kbps != 0) {
    detail::check_range(call, "kbps", kbps, limits_.rate_limit_min_kbps,
                        limits_.rate_limit_max_kbps, "the device's");
  }
  if (state() != queue_pair_state::rts) {
    detail::throw_failure(
        errc::illegal_transition, call,
        detail_text("a rate limit of a queue pair in %s; in RTS it can be set", to_string(state())),
        {"qp", num()});
  }
  ibv_qp_rate_limit_attr attributes{};
  attributes.rate_limit = kbps;
  attributes.max_burst_sz = burst_bytes;
  if (const int rc = ibv_modify_qp_rate_limit(qp_.get(), &attributes); rc != 0) {
    if (rc == EOPNOTSUPP || rc == ENOSYS)
      detail::throw_failure(errc::not_supported, call, "the driver has no such call",
                            {"qp", num()});
    detail::throw_errno(rc, call, detail_text("%u kbps", kbps), {"qp", num()});
  }
}

void queue_pair::to_error() {
  check_transition(state(), queue_pair_state::error);
  ibv_qp_attr attributes{};
  modify(queue_pair_state::error, attributes, 0);
}

void queue_pair::to_reset() {
  ibv_qp_attr attributes{};
  modify(queue_pair_state::reset, attributes, 0);
}

}  // namespace cordma::verbs
