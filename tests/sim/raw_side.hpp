#pragma once

#include <cordma/coro/sleep.hpp>
#include <cordma/coro/task.hpp>
#include <cordma/sim.hpp>

#include <infiniband/verbs.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

namespace cordma::test {

/// Verbs of a program on a simulated host that uses no library: one registered buffer, one queue
/// pair, one completion queue.
class raw_side {
 public:
  static constexpr int access =
      IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;

  /// \param tamper  is called before the first verb on the context: may change its calls
  explicit raw_side(void (*tamper)(ibv_context&) = nullptr) {
    ibv_device** const devices = ::ibv_get_device_list(nullptr);
    context = ::ibv_open_device(devices[0]);
    ::ibv_free_device_list(devices);
    if (tamper != nullptr) tamper(*context);
    pd = ::ibv_alloc_pd(context);
    mr = ::ibv_reg_mr(pd, memory.data(), memory.size(), access);
    cq = ::ibv_create_cq(context, 32, nullptr, nullptr, 0);
    make_qp();
    check(::ibv_query_gid(context, 1, 0, &gid), "ibv_query_gid");
  }
  raw_side(const raw_side&) = delete;
  ~raw_side() {
    ::ibv_destroy_qp(qp);
    ::ibv_destroy_cq(cq);
    ::ibv_dereg_mr(mr);
    ::ibv_dealloc_pd(pd);
    ::ibv_close_device(context);
  }

  /// Makes the queue pair, which is in INIT. \param srq  null: it has receives of its own
  /// \param send_ops  what ibv_wr_start(3) posts; 0: nothing
  void make_qp(ibv_srq* srq = nullptr, std::uint64_t send_ops = 0) {
    ibv_qp_init_attr_ex how{};
    how.send_cq = how.recv_cq = cq;
    how.cap = {.max_send_wr = 16,
               .max_recv_wr = 16,
               .max_send_sge = 4,
               .max_recv_sge = 4,
               .max_inline_data = 64};
    how.srq = srq;
    how.qp_type = IBV_QPT_RC;
    how.comp_mask = IBV_QP_INIT_ATTR_PD;
    if (send_ops != 0) how.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    how.pd = pd;
    how.send_ops_flags = send_ops;
    qp = ::ibv_create_qp_ex(context, &how);
    check(qp == nullptr ? -1 : 0, "ibv_create_qp_ex");
    to_init();
  }
  /// Brings the queue pair from RESET to INIT.
  void to_init() {
    ibv_qp_attr to{};
    to.qp_state = IBV_QPS_INIT;
    to.port_num = 1;
    to.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
    check(::ibv_modify_qp(qp, &to,
                          IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
          "ibv_modify_qp(INIT)");
  }
  /// Brings the queue pair to ERR or RESET.
  void end_qp(ibv_qp_state state) {
    ibv_qp_attr to{};
    to.qp_state = state;
    check(::ibv_modify_qp(qp, &to, IBV_QP_STATE), "ibv_modify_qp");
  }
  /// Brings the queue pair to RTS.
  void connect(const ibv_gid& peer, std::uint32_t peer_qpn) {
    ibv_qp_attr to{};
    to.qp_state = IBV_QPS_RTR;
    to.path_mtu = IBV_MTU_1024;
    to.dest_qp_num = peer_qpn;
    to.ah_attr.is_global = 1;
    to.ah_attr.port_num = 1;
    to.ah_attr.grh.dgid = peer;
    to.ah_attr.grh.hop_limit = 1;
    to.max_dest_rd_atomic = 4;
    to.min_rnr_timer = 12;
    check(::ibv_modify_qp(qp, &to,
                          IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                              IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
          "ibv_modify_qp(RTR)");
    to.qp_state = IBV_QPS_RTS;
    to.timeout = 14;
    to.retry_cnt = 7;
    to.rnr_retry = 7;
    to.max_rd_atomic = 4;
    check(::ibv_modify_qp(qp, &to,
                          IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                              IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC),
          "ibv_modify_qp(RTS)");
  }

  /// A piece of the buffer.
  [[nodiscard]] ibv_sge piece(std::size_t offset, std::size_t bytes) const {
    return {.addr = address(offset), .length = std::uint32_t(bytes), .lkey = mr->lkey};
  }
  [[nodiscard]] std::uint64_t address(std::size_t offset) const {
    return reinterpret_cast<std::uint64_t>(memory.data() + offset);
  }
  void send(ibv_send_wr wr, std::vector<ibv_sge> list) {
    ibv_send_wr* bad = nullptr;
    wr.sg_list = list.data();
    wr.num_sge = int(list.size());
    check(::ibv_post_send(qp, &wr, &bad), "ibv_post_send");
  }
  void receive(std::uint64_t id, std::vector<ibv_sge> list) {
    ibv_recv_wr wr{
        .wr_id = id, .next = nullptr, .sg_list = list.data(), .num_sge = int(list.size())};
    ibv_recv_wr* bad = nullptr;
    check(::ibv_post_recv(qp, &wr, &bad), "ibv_post_recv");
  }
  /// Polls until a request ends, also with an error.
  task<ibv_wc> ended() {
    ibv_wc wc{};
    for (;;) {
      const int count = ::ibv_poll_cq(cq, 1, &wc);
      if (count < 0) throw std::runtime_error{"ibv_poll_cq failed"};
      if (count == 1) co_return wc;
      co_await sleep_for(std::chrono::microseconds{10});
    }
  }
  /// Polls until a request ends, which must succeed.
  task<ibv_wc> completion() {
    const ibv_wc wc = co_await ended();
    if (wc.status != IBV_WC_SUCCESS) throw std::runtime_error{::ibv_wc_status_str(wc.status)};
    co_return wc;
  }

  ibv_gid gid{};
  ibv_context* context = nullptr;
  ibv_pd* pd = nullptr;
  ibv_mr* mr = nullptr;
  ibv_cq* cq = nullptr;
  ibv_qp* qp = nullptr;
  std::array<std::byte, 4096> memory{};

 private:
  static void check(int error, const char* call) {
    if (error != 0) throw std::runtime_error{call};
  }
};

/// A signaled request; one-sided ones reach `offset` of the peer's buffer.
inline ibv_send_wr request(ibv_wr_opcode opcode, const raw_side* peer = nullptr,
                           std::size_t offset = 0) {
  ibv_send_wr wr{};
  wr.wr_id = 1;
  wr.opcode = opcode;
  wr.send_flags = IBV_SEND_SIGNALED;
  if (peer != nullptr) {
    wr.wr.rdma.remote_addr = peer->address(offset);
    wr.wr.rdma.rkey = peer->mr->rkey;
  }
  return wr;
}

/// Two hosts, a and b, whose programs use raw verbs on connected queue pairs.
class raw_world {
 public:
  /// A host's part, with its own side and the other one.
  using part = std::function<task<>(raw_side& own, raw_side& other)>;

  explicit raw_world(std::uint64_t seed = 1) : world{seed} {}

  /// Returns the text of the finding; empty: both parts came to their ends.
  std::string play(part of_a, part of_b, void (*tamper_a)(ibv_context&) = nullptr,
                   void (*tamper_b)(ibv_context&) = nullptr) {
    parts_ = {std::move(of_a), std::move(of_b)};
    a.start([this, tamper_a](runtime&) { return live(0, tamper_a); });
    b.start([this, tamper_b](runtime&) { return live(1, tamper_b); });
    try {
      world.run(std::chrono::seconds{3});
    } catch (const sim::finding& found) {
      return found.what();
    }
    return {};
  }

  sim::world world;
  sim::host& a = world.add_host("a");
  sim::host& b = world.add_host("b");

 private:
  task<> live(std::size_t which, void (*tamper)(ibv_context&)) {
    raw_side own{tamper};
    sides_[which] = &own;
    while (sides_[1 - which] == nullptr) co_await sleep_for(std::chrono::milliseconds{1});
    raw_side& other = *sides_[1 - which];
    own.connect(other.gid, other.qp->qp_num);
    co_await sleep_for(std::chrono::milliseconds{5});
    co_await parts_[which](own, other);
    for (++ended_; ended_ < 2;) co_await sleep_for(std::chrono::milliseconds{1});
  }

  std::array<part, 2> parts_;
  std::array<raw_side*, 2> sides_{};
  unsigned ended_ = 0;
};

}  // namespace cordma::test
