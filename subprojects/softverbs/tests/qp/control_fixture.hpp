#pragma once

#include "node/gid_table.hpp"
#include "node/node.hpp"
#include "object/address_handle.hpp"
#include "object/context.hpp"
#include "object/soft_verbs.hpp"
#include "qp/queue_pair.hpp"

#include <catch2/catch.hpp>

#include <initializer_list>

namespace softverbs {

inline constexpr std::uint32_t depth = 4;
inline constexpr std::uint32_t list_max = 2;
inline constexpr std::uint32_t inline_max = 16;

/// soft0 opened, with a PD and a CQ, and queue pairs that talk to themselves.
class device {
 public:
  ibv_context* ctx = open_context({});
  ibv_pd* pd = verb::alloc_pd(ctx);
  ibv_cq* cq = verb::create_cq(ctx, 64, nullptr, nullptr, 0);

  device() = default;
  device(const device&) = delete;
  device& operator=(const device&) = delete;
  ~device() {
    CHECK(verb::destroy_cq(cq) == 0);
    CHECK(verb::dealloc_pd(pd) == 0);
    close_context(ctx);
  }

  [[nodiscard]] ibv_qp_init_attr wanted(ibv_qp_type type) const {
    ibv_qp_init_attr attr{};
    attr.send_cq = attr.recv_cq = cq;
    attr.cap = {depth, depth, list_max, list_max, inline_max};
    attr.qp_type = type;
    return attr;
  }

  [[nodiscard]] ibv_qp_init_attr_ex wanted_ex(ibv_qp_type type, std::uint64_t operations) const {
    ibv_qp_init_attr_ex attr{};
    attr.send_cq = attr.recv_cq = cq;
    attr.cap = {depth, depth, list_max, list_max, inline_max};
    attr.qp_type = type;
    attr.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    attr.pd = pd;
    attr.send_ops_flags = operations;
    return attr;
  }

  [[nodiscard]] ibv_qp* create(ibv_qp_type type) const {
    auto attr = wanted(type);
    ibv_qp* qp = verb::create_qp(pd, &attr);
    REQUIRE(qp != nullptr);
    return qp;
  }

  [[nodiscard]] ibv_qp* create_ex(ibv_qp_type type, std::uint64_t operations) const {
    auto attr = wanted_ex(type, operations);
    ibv_qp* qp = verb::create_qp_ex(ctx, &attr);
    REQUIRE(qp != nullptr);
    return qp;
  }

  [[nodiscard]] address_handle address() const {
    address_handle ah{};
    ah.handle.context = ctx;
    ah.handle.pd = pd;
    ah.pd = pd;
    ah.gid = ah.source_gid = gid_at(0);
    return ah;
  }
};

/// Good values for all attributes; the peer is the queue pair itself.
inline ibv_qp_attr good_attributes(const ibv_qp& qp) {
  ibv_qp_attr attr{};
  attr.port_num = 1;
  attr.qkey = 0x1234;
  attr.qp_access_flags = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;
  attr.path_mtu = IBV_MTU_1024;
  attr.dest_qp_num = qp.qp_num;
  attr.rq_psn = 0x111111;
  attr.sq_psn = 0x222222;
  attr.max_rd_atomic = 3;
  attr.max_dest_rd_atomic = 5;
  attr.min_rnr_timer = 12;
  attr.timeout = 14;
  attr.retry_cnt = 6;
  attr.rnr_retry = 7;
  attr.ah_attr.is_global = 1;
  attr.ah_attr.port_num = 1;
  attr.ah_attr.grh.dgid = gid_at(0);
  return attr;
}

/// The attributes that a move to `to` requires.
inline int required_mask(ibv_qp_type type, ibv_qp_state to) {
  const bool connected = type != IBV_QPT_UD;
  switch (to) {
    case IBV_QPS_INIT:
      return IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
             (connected ? IBV_QP_ACCESS_FLAGS : IBV_QP_QKEY);
    case IBV_QPS_RTR:
      return IBV_QP_STATE |
             (connected ? IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN : 0) |
             (type == IBV_QPT_RC ? IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER : 0);
    case IBV_QPS_RTS:
      return IBV_QP_STATE | IBV_QP_SQ_PSN |
             (type == IBV_QPT_RC
                  ? IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC
                  : 0);
    default: return IBV_QP_STATE;
  }
}

inline int move_to(ibv_qp* qp, ibv_qp_state to) {
  auto attr = good_attributes(*qp);
  attr.qp_state = to;
  return verb::modify_qp(qp, &attr, required_mask(qp->qp_type, to));
}

/// In SQD, posts are accepted and wait: what was queued can be looked at.
inline void drain_ready(ibv_qp* qp) {
  for (const auto to : {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS, IBV_QPS_SQD})
    REQUIRE(move_to(qp, to) == 0);
}

inline queue_pair& inside(ibv_qp* qp) { return *reinterpret_cast<queue_pair*>(qp); }

}  // namespace softverbs
