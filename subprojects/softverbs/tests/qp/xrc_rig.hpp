#pragma once

#include "object/xrc_domain.hpp"
#include "qp/pair.hpp"

#include <fcntl.h>

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <utility>
#include <vector>

namespace softverbs::test {

/// A domain of a process: its own, or that of a file.
struct open_domain {
  explicit open_domain(ibv_context* ctx, int fd = -1, int oflags = O_CREAT) {
    ibv_xrcd_init_attr attr{};
    attr.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
    attr.fd = fd;
    attr.oflags = oflags;
    xrcd = verb::open_xrcd(ctx, &attr);
  }
  ~open_domain() {
    if (xrcd != nullptr) CHECK(verb::close_xrcd(xrcd) == 0);
  }
  open_domain(const open_domain&) = delete;
  open_domain& operator=(const open_domain&) = delete;
  ibv_xrcd* xrcd = nullptr;
};

/// A receive queue of a domain, with a protection domain, completion queue and memory of its own.
class xrc_queue {
 public:
  xrc_queue(ibv_context* ctx, ibv_xrcd* xrcd, std::size_t bytes = 1 << 20)
      : memory(bytes), pd{verb::alloc_pd(ctx)}, cq{verb::create_cq(ctx, 64, nullptr, nullptr, 0)} {
    mr = verb::reg_mr(pd, memory.data(), memory.size(), address(), all_access);
    ibv_srq_init_attr_ex attr{};
    attr.attr = {.max_wr = 16, .max_sge = 4, .srq_limit = 0};
    attr.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD |
                     IBV_SRQ_INIT_ATTR_CQ;
    attr.srq_type = IBV_SRQT_XRC;
    attr.pd = pd;
    attr.xrcd = xrcd;
    attr.cq = cq;
    srq = verb::create_srq_ex(ctx, &attr);
    REQUIRE(srq != nullptr);
    REQUIRE(verb::get_srq_num(srq, &number) == 0);
  }
  ~xrc_queue() {
    destroy();
    CHECK(verb::destroy_cq(cq) == 0);
    CHECK(verb::dereg_mr(mr) == 0);
    CHECK(verb::dealloc_pd(pd) == 0);
  }
  xrc_queue(const xrc_queue&) = delete;
  xrc_queue& operator=(const xrc_queue&) = delete;
  void destroy() {
    if (srq != nullptr) CHECK(verb::destroy_srq(std::exchange(srq, nullptr)) == 0);
  }

  [[nodiscard]] std::uint64_t address(std::size_t at = 0) const {
    return reinterpret_cast<std::uint64_t>(memory.data()) + at;
  }
  void receive(std::uint64_t id, std::size_t at, std::uint32_t bytes) const {
    ibv_sge sge{address(at), bytes, mr->lkey};
    ibv_recv_wr wr{id, nullptr, &sge, 1};
    ibv_recv_wr* bad = nullptr;
    REQUIRE(verb::post_srq_recv(srq, &wr, &bad) == 0);
  }
  ibv_wc await() const {
    ibv_wc wc{};
    const auto deadline = clock::now() + patience;
    while (verb::poll_cq(cq, 1, &wc) == 0) REQUIRE(clock::now() < deadline);
    return wc;
  }
  [[nodiscard]] bool is_quiet() const {
    ibv_wc wc{};
    return verb::poll_cq(cq, 1, &wc) == 0;
  }

  std::vector<std::byte> memory;
  ibv_pd* pd;
  ibv_cq* cq;
  ibv_mr* mr = nullptr;
  ibv_srq* srq = nullptr;
  std::uint32_t number = 0;
};

/// One end of a connection: a target of a domain, or an initiator with memory and completions.
class xrc_end {
 public:
  /// A target.
  xrc_end(ibv_context* ctx, ibv_xrcd* xrcd) : ctx_{ctx} {
    ibv_qp_init_attr_ex attr{};
    attr.qp_type = IBV_QPT_XRC_RECV;
    attr.comp_mask = IBV_QP_INIT_ATTR_XRCD;
    attr.xrcd = xrcd;
    qp = verb::create_qp_ex(ctx, &attr);
    REQUIRE(qp != nullptr);
  }
  /// An initiator. `operations`: those of ibv_wr_*.
  explicit xrc_end(ibv_context* ctx, std::uint64_t operations = 0) : memory(1 << 20), ctx_{ctx} {
    pd = verb::alloc_pd(ctx);
    cq = verb::create_cq(ctx, 64, nullptr, nullptr, 0);
    mr = verb::reg_mr(pd, memory.data(), memory.size(), address(), all_access);
    ibv_qp_init_attr_ex attr{};
    attr.qp_type = IBV_QPT_XRC_SEND;
    attr.comp_mask = IBV_QP_INIT_ATTR_PD;
    if (operations != 0) {
      attr.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
      attr.send_ops_flags = operations;
    }
    attr.pd = pd;
    attr.send_cq = cq;
    attr.cap = {.max_send_wr = 32,
                .max_recv_wr = 0,
                .max_send_sge = 4,
                .max_recv_sge = 0,
                .max_inline_data = 64};
    qp = verb::create_qp_ex(ctx, &attr);
    REQUIRE(qp != nullptr);
  }
  ~xrc_end() {
    CHECK(verb::destroy_qp(qp) == 0);
    if (cq == nullptr) return;
    CHECK(verb::destroy_cq(cq) == 0);
    CHECK(verb::dereg_mr(mr) == 0);
    CHECK(verb::dealloc_pd(pd) == 0);
  }
  xrc_end(const xrc_end&) = delete;
  xrc_end& operator=(const xrc_end&) = delete;

  [[nodiscard]] bool is_target() const { return qp->qp_type == IBV_QPT_XRC_RECV; }
  [[nodiscard]] queue_pair& inner() const { return *reinterpret_cast<queue_pair*>(qp); }
  [[nodiscard]] std::uint64_t address(std::size_t at = 0) const {
    return reinterpret_cast<std::uint64_t>(memory.data()) + at;
  }
  void fill(std::size_t at, std::size_t bytes, int seed) {
    for (std::size_t i = 0; i < bytes; ++i)
      memory[at + i] = static_cast<std::byte>(static_cast<std::size_t>(seed) + i * 7);
  }

  void connect(std::uint32_t peer_qpn, std::uint32_t peer_psn, std::uint32_t own_psn) {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = 1;
    attr.qp_access_flags =
        IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
    modify(attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
    attr.qp_state = IBV_QPS_RTR;
    attr.path_mtu = IBV_MTU_1024;
    attr.dest_qp_num = peer_qpn;
    attr.rq_psn = peer_psn;
    attr.ah_attr = side::path();
    attr.max_dest_rd_atomic = 4;
    attr.min_rnr_timer = 1;
    const int of_target = IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
    modify(attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                     (is_target() ? of_target : 0));
    if (!is_target() && std::getenv("SOFTVERBS_LINK") != nullptr)
      inner().peer.host = in6_addr{{{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127, 0, 0, 1}}};
    attr.qp_state = IBV_QPS_RTS;
    attr.sq_psn = own_psn;
    attr.timeout = 1;
    attr.retry_cnt = 2;
    attr.rnr_retry = 2;
    attr.max_rd_atomic = 4;
    const int of_initiator = IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
    modify(attr, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | (is_target() ? 0 : of_initiator));
  }

  [[nodiscard]] ibv_sge piece(std::size_t at, std::uint32_t bytes) const {
    return {address(at), bytes, mr->lkey};
  }
  /// Posts a request to the queue of that number.
  int post(ibv_send_wr wr, std::uint32_t number, std::vector<ibv_sge> list = {}) const {
    wr.qp_type.xrc.remote_srqn = number;
    wr.sg_list = list.data();
    wr.num_sge = static_cast<int>(list.size());
    ibv_send_wr* bad = nullptr;
    return verb::post_send(qp, &wr, &bad);
  }
  ibv_wc await() const {
    ibv_wc wc{};
    const auto deadline = clock::now() + patience;
    while (verb::poll_cq(cq, 1, &wc) == 0) REQUIRE(clock::now() < deadline);
    return wc;
  }
  std::vector<ibv_event_type> events() const {
    std::vector<ibv_event_type> all;
    pollfd ready{soft(ctx_).async.fd(), POLLIN, 0};
    ibv_async_event event{};
    while (::poll(&ready, 1, 0) == 1 && soft(ctx_).async.pop(event) == 0) {
      if (event.event_type == IBV_EVENT_SRQ_LIMIT_REACHED)
        ++event.element.srq->events_completed;
      else
        ++event.element.qp->events_completed;
      if (event.event_type != IBV_EVENT_COMM_EST) all.push_back(event.event_type);
    }
    return all;
  }

  std::vector<std::byte> memory;
  ibv_pd* pd = nullptr;
  ibv_cq* cq = nullptr;
  ibv_mr* mr = nullptr;
  ibv_qp* qp = nullptr;

 private:
  void modify(ibv_qp_attr& attr, int mask) const { REQUIRE(verb::modify_qp(qp, &attr, mask) == 0); }
  ibv_context* ctx_;
};

struct xrc_context {
  ~xrc_context() { close_context(ctx); }
  ibv_context* ctx = open_context({});
};

/// A domain with a target and two receive queues, and an initiator that is connected with it.
struct xrc_pair : xrc_context {
  explicit xrc_pair(std::uint64_t operations = 0) : from{ctx, operations} {
    target.connect(from.qp->qp_num, psn_of_initiator, 0);
    from.connect(target.qp->qp_num, 0, psn_of_initiator);
  }
  static constexpr std::uint32_t psn_of_initiator = 0xfffffe;  // Wraps soon.
  open_domain domain{ctx};
  xrc_queue near{ctx, domain.xrcd};
  xrc_queue other{ctx, domain.xrcd};
  xrc_end target{ctx, domain.xrcd};
  xrc_end from;
};

}  // namespace softverbs::test
