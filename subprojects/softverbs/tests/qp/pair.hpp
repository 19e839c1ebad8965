#pragma once

#include "node/gid_table.hpp"
#include "node/port.hpp"
#include "object/context.hpp"
#include "object/soft_verbs.hpp"
#include "qp/queue_pair.hpp"

#include <poll.h>
#include <catch2/catch.hpp>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

namespace softverbs::test {

inline constexpr unsigned all_access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                                       IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC |
                                       IBV_ACCESS_MW_BIND;
inline constexpr std::chrono::seconds patience{20};

/// How two queue pairs are made and connected.
struct pair_options {
  ibv_qp_type type = IBV_QPT_RC;
  unsigned qp_access = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
  unsigned mr_access = all_access;
  std::size_t bytes = 1 << 20;
  bool signal_all = false;
  bool srq = false;
  bool channel = false;
  int cqe = 64;
  std::uint32_t depth = 32;  // depth of the send queue
  std::uint8_t timeout = 1;  // 8 us
  std::uint8_t retry_cnt = 2;
  std::uint8_t rnr_retry = 2;
  std::uint8_t min_rnr_timer = 1;  // 10 us
  std::uint8_t rd_atomic = 4;
  std::uint32_t qkey = 0x1234;
  std::uint64_t operations = 0;   // IBV_QP_EX_WITH_*; 0: ibv_create_qp makes the queue pair
  std::optional<ibv_gid> peer{};  // The peer is on another host.
};

/// One end: its own context and PD, one CQ, one registered buffer.
class side {
 public:
  std::vector<std::byte> memory;
  ibv_pd* pd = nullptr;
  ibv_comp_channel* channel = nullptr;
  ibv_cq* cq = nullptr;
  ibv_mr* mr = nullptr;
  ibv_srq* srq = nullptr;
  ibv_qp* qp = nullptr;

  explicit side(const pair_options& how) : memory(how.bytes), how_{how} {
    pd = verb::alloc_pd(ctx_);
    if (how.channel) channel = verb::create_comp_channel(ctx_);
    cq = verb::create_cq(ctx_, how.cqe, nullptr, channel, 0);
    REQUIRE(cq != nullptr);
    mr = add_region(memory.data(), memory.size(), how.mr_access);
    if (how.srq) {
      ibv_srq_init_attr attr{};
      attr.attr = {.max_wr = 16, .max_sge = 4, .srq_limit = 0};
      srq = verb::create_srq(pd, &attr);
    }
    ibv_qp_init_attr attr{};
    attr.send_cq = attr.recv_cq = cq;
    attr.srq = srq;
    attr.cap = {.max_send_wr = how.depth,
                .max_recv_wr = 32,
                .max_send_sge = 4,
                .max_recv_sge = 4,
                .max_inline_data = 256};
    attr.qp_type = how.type;
    attr.sq_sig_all = how.signal_all ? 1 : 0;
    qp = how.operations == 0 ? verb::create_qp(pd, &attr) : create_extended(attr, how.operations);
    REQUIRE(qp != nullptr);
  }
  ~side() {
    destroy_qp();
    if (srq != nullptr) verb::destroy_srq(srq);
    for (ibv_mw* window : windows_) verb::dealloc_mw(window);
    for (ibv_mr* region : regions_) verb::dereg_mr(region);
    verb::destroy_cq(cq);
    if (channel != nullptr) verb::destroy_comp_channel(channel);
    verb::dealloc_pd(pd);
    close_context(ctx_);
  }
  side(const side&) = delete;
  side& operator=(const side&) = delete;

  void destroy_qp() {
    if (qp == nullptr) return;
    verb::destroy_qp(std::exchange(qp, nullptr));
  }

  ibv_mr* add_region(void* at, std::size_t bytes, unsigned access) {
    regions_.push_back(verb::reg_mr(pd, at, bytes, reinterpret_cast<std::uint64_t>(at), access));
    REQUIRE(regions_.back() != nullptr);
    return regions_.back();
  }
  ibv_mw* add_window(ibv_mw_type type) {
    windows_.push_back(verb::alloc_mw(pd, type));
    REQUIRE(windows_.back() != nullptr);
    return windows_.back();
  }

  void to_init() {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = 1;
    attr.qp_access_flags = how_.qp_access;
    attr.qkey = how_.qkey;
    const int third = how_.type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS;
    REQUIRE(verb::modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | third) ==
            0);
  }
  void to_rtr(std::uint32_t peer_qpn, std::uint32_t psn) {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_RTR;
    attr.path_mtu = IBV_MTU_1024;
    attr.dest_qp_num = peer_qpn;
    attr.rq_psn = psn;
    attr.ah_attr = path();
    if (how_.peer) attr.ah_attr.grh.dgid = *how_.peer;
    attr.max_dest_rd_atomic = how_.rd_atomic;
    attr.min_rnr_timer = how_.min_rnr_timer;
    int mask = IBV_QP_STATE;
    if (how_.type != IBV_QPT_UD)
      mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
    if (how_.type == IBV_QPT_RC) mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
    REQUIRE(verb::modify_qp(qp, &attr, mask) == 0);
  }
  void to_rts(std::uint32_t psn) {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_RTS;
    attr.sq_psn = psn;
    attr.timeout = how_.timeout;
    attr.retry_cnt = how_.retry_cnt;
    attr.rnr_retry = how_.rnr_retry;
    attr.max_rd_atomic = how_.rd_atomic;
    int mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
    if (how_.type == IBV_QPT_RC)
      mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
    REQUIRE(verb::modify_qp(qp, &attr, mask) == 0);
  }
  void to(ibv_qp_state state) {
    ibv_qp_attr attr{};
    attr.qp_state = state;
    REQUIRE(verb::modify_qp(qp, &attr, IBV_QP_STATE) == 0);
  }
  [[nodiscard]] node& local_node() const { return *soft(ctx_).local_node; }
  [[nodiscard]] ibv_qp_state state() const { return inner().state.load(); }
  [[nodiscard]] queue_pair& inner() const { return *reinterpret_cast<queue_pair*>(qp); }

  /// The path to this host: by GID, or by LID on an InfiniBand port.
  static ibv_ah_attr path() {
    ibv_ah_attr attr{};
    attr.port_num = 1;
    if (is_infiniband()) {
      attr.dlid = port_subnet()->own_lid();
      return attr;
    }
    attr.is_global = 1;
    attr.grh.sgid_index = static_cast<std::uint8_t>(gid_count() - 1);
    attr.grh.dgid = gid_at(gid_count() - 1);
    return attr;
  }

  [[nodiscard]] ibv_sge piece(std::size_t offset, std::size_t bytes) {
    return {reinterpret_cast<std::uint64_t>(memory.data()) + offset,
            static_cast<std::uint32_t>(bytes), mr->lkey};
  }
  [[nodiscard]] std::uint64_t address(std::size_t offset = 0) const {
    return reinterpret_cast<std::uint64_t>(memory.data()) + offset;
  }
  void fill(std::size_t offset, std::size_t bytes, int seed) {
    for (std::size_t i = 0; i < bytes; ++i)
      memory[offset + i] = static_cast<std::byte>(static_cast<std::size_t>(seed) + i * 7);
  }

  int receive(std::uint64_t id, std::vector<ibv_sge> list = {}) {
    ibv_recv_wr wr{id, nullptr, list.data(), static_cast<int>(list.size())};
    ibv_recv_wr* bad = nullptr;
    return srq != nullptr ? verb::post_srq_recv(srq, &wr, &bad) : verb::post_recv(qp, &wr, &bad);
  }
  int send(ibv_send_wr wr, std::vector<ibv_sge> list = {}) {
    wr.sg_list = list.data();
    wr.num_sge = static_cast<int>(list.size());
    ibv_send_wr* bad = nullptr;
    return verb::post_send(qp, &wr, &bad);
  }

  /// The next completion; fails the test when none comes.
  ibv_wc await() {
    ibv_wc wc{};
    const auto deadline = clock::now() + patience;
    while (verb::poll_cq(cq, 1, &wc) == 0) REQUIRE(clock::now() < deadline);
    return wc;
  }
  /// Work is done, but no completion taken, until `happened`.
  template <typename Condition>
  void settle(Condition happened) {
    const auto deadline = clock::now() + patience;
    while (!happened()) {
      REQUIRE(clock::now() < deadline);
      soft(ctx_).local_node->progress();
    }
  }
  /// Tells whether the responder saw anything yet.
  [[nodiscard]] bool was_reached() const {
    const std::lock_guard lock{inner().slot->receive};
    return inner().slot->expected.established;
  }
  /// True if no completion came after all that could be done was done.
  bool is_quiet() {
    ibv_wc wc{};
    return verb::poll_cq(cq, 1, &wc) == 0;
  }
  bool next_event(ibv_async_event& event) {
    pollfd ready{soft(ctx_).async.fd(), POLLIN, 0};
    if (::poll(&ready, 1, 0) != 1 || soft(ctx_).async.pop(event) != 0) return false;
    // Acknowledged at once, as its object's destruction waits for that.
    if (event.event_type == IBV_EVENT_CQ_ERR)
      ++event.element.cq->async_events_completed;
    else if (event.event_type == IBV_EVENT_SRQ_LIMIT_REACHED)
      ++event.element.srq->events_completed;
    else
      ++event.element.qp->events_completed;
    return true;
  }
  /// The events so far, COMM_EST aside.
  std::vector<ibv_event_type> events() {
    std::vector<ibv_event_type> all;
    for (ibv_async_event event{}; next_event(event);)
      if (event.event_type != IBV_EVENT_COMM_EST) all.push_back(event.event_type);
    return all;
  }

 private:
  ibv_qp* create_extended(const ibv_qp_init_attr& attr, std::uint64_t operations) {
    ibv_qp_init_attr_ex wanted{};
    wanted.send_cq = attr.send_cq;
    wanted.recv_cq = attr.recv_cq;
    wanted.srq = attr.srq;
    wanted.cap = attr.cap;
    wanted.qp_type = attr.qp_type;
    wanted.sq_sig_all = attr.sq_sig_all;
    wanted.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    wanted.pd = pd;
    wanted.send_ops_flags = operations;
    return verb::create_qp_ex(ctx_, &wanted);
  }

  pair_options how_;
  ibv_context* ctx_ = open_context({});
  std::vector<ibv_mr*> regions_;
  std::vector<ibv_mw*> windows_;
};

/// Two connected ends, ready to send. With SOFTVERBS_LINK=tcp, the frames of `a` leave the
/// process by TCP, and enter it again by its TCP listener.
class pair {
 public:
  explicit pair(const pair_options& how = {}) : a{how}, b{how} {
    a.to_init();
    b.to_init();
    b.to_rtr(a.qp->qp_num, psn_of_a);
    connect_a(how.type);
    b.to_rts(psn_of_b);
  }
  /// `a`, which failed, goes on from the packet that `b` expects.
  void revive_a(ibv_qp_type type = IBV_QPT_RC) {
    a.to(IBV_QPS_RESET);
    a.to_init();
    connect_a(type);
  }
  side a;
  side b;

 private:
  static constexpr std::uint32_t psn_of_a = 0xfffffe;  // Wraps soon.
  static constexpr std::uint32_t psn_of_b = 20;

  void connect_a(ibv_qp_type type) {
    a.to_rtr(b.qp->qp_num, psn_of_b);
    if (const char* kind = std::getenv("SOFTVERBS_LINK"); kind != nullptr && type != IBV_QPT_UD)
      a.inner().peer.host = in6_addr{{{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127, 0, 0, 1}}};
    a.to_rts(psn_of_a);
  }
};

inline ibv_send_wr request(ibv_wr_opcode opcode, std::uint64_t id = 1,
                           unsigned flags = IBV_SEND_SIGNALED) {
  ibv_send_wr wr{};
  wr.wr_id = id;
  wr.opcode = opcode;
  wr.send_flags = flags;
  return wr;
}

/// A one-sided request on `at` bytes into the other end's buffer.
inline ibv_send_wr one_sided(ibv_wr_opcode opcode, const side& to, std::size_t at = 0,
                             std::uint64_t id = 1, unsigned flags = IBV_SEND_SIGNALED) {
  ibv_send_wr wr = request(opcode, id, flags);
  wr.wr.rdma.remote_addr = to.address(at);
  wr.wr.rdma.rkey = to.mr->rkey;
  return wr;
}

inline ibv_send_wr atomic(ibv_wr_opcode opcode, const side& to, std::size_t at,
                          std::uint64_t compare_add, std::uint64_t swap = 0) {
  ibv_send_wr wr = request(opcode);
  wr.wr.atomic.remote_addr = to.address(at);
  wr.wr.atomic.rkey = to.mr->rkey;
  wr.wr.atomic.compare_add = compare_add;
  wr.wr.atomic.swap = swap;
  return wr;
}

}  // namespace softverbs::test
