#pragma once

#include <rdma/rdma_cma.h>

#include <cordma/io/socket_address.hpp>

#include <poll.h>

#include <array>
#include <cstddef>
#include <cstring>
#include <memory>
#include <span>
#include <stdexcept>
#include <utility>

namespace cordma::cm::test {

/// Peers run on threads of their own, where Catch2's macros may not be used.
inline void must(bool holds) {
  if (!holds) throw std::runtime_error{"a foreign peer's step failed"};
}

/// A peer that is not cordma: librdmacm's own way, in which the identifier makes the queue pair and
/// moves it (rdma_create_qp(3)). Its calls block for at most `patience_ms`.
class foreign_peer {
 public:
  static constexpr int patience_ms = 60'000;

  foreign_peer() : channel_{rdma_create_event_channel()} {
    must(channel_ != nullptr);
    must(rdma_create_id(channel_.get(), &id_, nullptr, RDMA_PS_TCP) == 0);
  }
  foreign_peer(const foreign_peer&) = delete;
  foreign_peer& operator=(const foreign_peer&) = delete;
  ~foreign_peer() {
    if (id_->qp != nullptr) rdma_destroy_qp(id_);
    if (mr_ != nullptr) ibv_dereg_mr(mr_);
    if (cq_ != nullptr) ibv_destroy_cq(cq_);
    rdma_destroy_id(id_);
    if (listener_ != nullptr) rdma_destroy_id(listener_);
  }

  socket_address listen(socket_address at) {
    must(rdma_bind_addr(id_, const_cast<sockaddr*>(at.data())) == 0);
    must(rdma_listen(id_, 1) == 0);
    at.set_port(ntohs(rdma_get_src_port(id_)));
    return at;
  }
  /// Takes the request, and answers it.
  void accept(std::span<const std::byte> says) {
    const event_ptr request = next(RDMA_CM_EVENT_CONNECT_REQUEST);
    listener_ = std::exchange(id_, request->id);
    rdma_conn_param reply = parameters(says);
    reply.responder_resources = request->param.conn.responder_resources;
    reply.initiator_depth = request->param.conn.initiator_depth;
    keep_data(request->param.conn);
    make_queue_pair();
    must(rdma_accept(id_, &reply) == 0);
  }
  void refuse(std::span<const std::byte> says) {
    const event_ptr request = next(RDMA_CM_EVENT_CONNECT_REQUEST);
    listener_ = std::exchange(id_, request->id);
    must(rdma_reject(id_, says.data(), std::uint8_t(says.size())) == 0);
  }
  /// Sends a request.
  void connect(const socket_address& to, std::span<const std::byte> says) {
    must(rdma_resolve_addr(id_, nullptr, const_cast<sockaddr*>(to.data()), 2000) == 0);
    expect(RDMA_CM_EVENT_ADDR_RESOLVED);
    must(rdma_resolve_route(id_, 2000) == 0);
    expect(RDMA_CM_EVENT_ROUTE_RESOLVED);
    make_queue_pair();
    rdma_conn_param request = parameters(says);
    request.responder_resources = 1;
    request.initiator_depth = 1;
    must(rdma_connect(id_, &request) == 0);
  }
  /// Takes the next event, and keeps its private data.
  void expect(rdma_cm_event_type kind) {
    const event_ptr event = next(kind);
    keep_data(event->param.conn);
  }
  void disconnect() { must(rdma_disconnect(id_) == 0); }

  /// Sends 64 bytes of `value`.
  void send(std::byte value) {
    std::memset(bytes_.data(), int(value), 64);
    ibv_sge piece = whole();
    ibv_send_wr wr{};
    wr.sg_list = &piece;
    wr.num_sge = 1;
    wr.opcode = IBV_WR_SEND;
    ibv_send_wr* bad = nullptr;
    must(ibv_post_send(id_->qp, &wr, &bad) == 0);
    reap();
  }
  /// The first byte of the message that came; another receive is posted.
  std::byte receive() {
    reap();
    const std::byte first = bytes_[64];
    post_receive();
    return first;
  }
  [[nodiscard]] std::string said() const { return {data_.data(), strnlen(data_.data(), 196)}; }

 private:
  struct acknowledger {
    void operator()(rdma_cm_event* event) const noexcept { rdma_ack_cm_event(event); }
  };
  using event_ptr = std::unique_ptr<rdma_cm_event, acknowledger>;
  struct closer {
    void operator()(rdma_event_channel* one) const noexcept { rdma_destroy_event_channel(one); }
  };

  event_ptr next(rdma_cm_event_type kind) {
    pollfd waits{channel_->fd, POLLIN, 0};
    must(::poll(&waits, 1, patience_ms) == 1);
    rdma_cm_event* event = nullptr;
    must(rdma_get_cm_event(channel_.get(), &event) == 0);
    event_ptr owned{event};
    must(event->event == kind);
    return owned;
  }
  void keep_data(const rdma_conn_param& from) noexcept {
    data_ = {};
    if (from.private_data != nullptr)
      std::memcpy(data_.data(), from.private_data, from.private_data_len);
  }
  /// Returns rping's parameters: it retries for ever.
  static rdma_conn_param parameters(std::span<const std::byte> says) noexcept {
    rdma_conn_param made{};
    made.private_data = says.data();
    made.private_data_len = std::uint8_t(says.size());
    made.retry_count = 7;
    made.rnr_retry_count = 7;
    return made;
  }
  void make_queue_pair() {
    cq_ = ibv_create_cq(id_->verbs, 8, nullptr, nullptr, 0);
    must(cq_ != nullptr);
    mr_ = ibv_reg_mr(id_->pd, bytes_.data(), bytes_.size(), int{IBV_ACCESS_LOCAL_WRITE});
    must(mr_ != nullptr);
    ibv_qp_init_attr wanted{};
    wanted.send_cq = cq_;
    wanted.recv_cq = cq_;
    wanted.cap = {4, 4, 1, 1, 0};
    wanted.qp_type = IBV_QPT_RC;
    wanted.sq_sig_all = 1;
    must(rdma_create_qp(id_, id_->pd, &wanted) == 0);
    post_receive();
  }
  ibv_sge whole(std::size_t offset = 0) noexcept {
    return {reinterpret_cast<std::uint64_t>(bytes_.data() + offset), 64, mr_->lkey};
  }
  void post_receive() {
    ibv_sge piece = whole(64);
    ibv_recv_wr wr{};
    wr.sg_list = &piece;
    wr.num_sge = 1;
    ibv_recv_wr* bad = nullptr;
    must(ibv_post_recv(id_->qp, &wr, &bad) == 0);
  }
  void reap() {
    ibv_wc wc{};
    int n = 0;
    for (unsigned long spins = 0; n == 0 && spins < 500'000'000; ++spins)
      n = ibv_poll_cq(cq_, 1, &wc);
    must(n == 1);
    must(wc.status == IBV_WC_SUCCESS);
  }

  std::unique_ptr<rdma_event_channel, closer> channel_;
  rdma_cm_id* id_ = nullptr;
  rdma_cm_id* listener_ = nullptr;
  ibv_cq* cq_ = nullptr;
  ibv_mr* mr_ = nullptr;
  std::array<std::byte, 128> bytes_{};
  std::array<char, 256> data_{};
};

}  // namespace cordma::cm::test
