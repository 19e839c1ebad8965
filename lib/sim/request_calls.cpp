#include "host_state.hpp"
#include "request_oracle.hpp"

// The calls of a context, and of an extended queue pair, that the oracle takes the place of.

namespace cordma::sim::detail {

void request_oracle::watch(host_state& host, ibv_context* on) {
  if (on->ops.post_send == &post_send) return;
  verbs_context* const extended = verbs_get_ctx(on);
  contexts_[on] = {&host, on->ops, extended == nullptr ? nullptr : extended->create_qp_ex};
  if (extended != nullptr && extended->create_qp_ex != nullptr)
    extended->create_qp_ex = &create_qp_ex;
  on->ops.post_send = &post_send;
  on->ops.post_recv = &post_recv;
  on->ops.post_srq_recv = &post_srq_recv;
  on->ops.poll_cq = &poll_cq;
  on->ops.bind_mw = &bind_mw;
}

int request_oracle::post_send(ibv_qp* qp, ibv_send_wr* first, ibv_send_wr** bad) {
  const context& on = current_->contexts_.at(qp->context);
  queue& q = current_->queue_of(on, qp);
  // The device may work on a request before its call returns.
  std::size_t count = 0;
  for (const ibv_send_wr* wr = first; wr != nullptr; wr = wr->next, ++count) current_->sent(q, *wr);
  const int error = on.before.post_send(qp, first, bad);
  if (error != 0) {
    for (const ibv_send_wr* wr = first; wr != *bad; wr = wr->next) --count;
    for (; count > 0; --count) current_->not_sent(q);
  }
  return error;
}

/// A window of type 1 has a call of its own.
int request_oracle::bind_mw(ibv_qp* qp, ibv_mw* mw, ibv_mw_bind* bind) {
  const context& on = current_->contexts_.at(qp->context);
  queue& q = current_->queue_of(on, qp);
  ibv_send_wr wr{};
  wr.wr_id = bind->wr_id;
  wr.opcode = IBV_WR_BIND_MW;
  wr.send_flags = bind->send_flags;
  current_->sent(q, wr);
  const int error = on.before.bind_mw(qp, mw, bind);
  if (error != 0) current_->not_sent(q);
  return error;
}

ibv_qp* request_oracle::create_qp_ex(ibv_context* opened, ibv_qp_init_attr_ex* attributes) {
  const context& on = current_->contexts_.at(opened);
  ibv_qp* const qp = on.create_before(opened, attributes);
  ibv_qp_ex* const extended = qp == nullptr ? nullptr : ::ibv_qp_to_qp_ex(qp);
  if (extended == nullptr) return qp;
  queue& q = current_->queue_of(on, qp);
  q.before = {extended->wr_atomic_write, extended->wr_complete, extended->wr_abort};
  extended->wr_atomic_write = &wr_atomic_write;
  extended->wr_complete = &wr_complete;
  extended->wr_abort = &wr_abort;
  // The other requests of ibv_wr_start(3) are not seen.
  if ((attributes->send_ops_flags & ~std::uint64_t{IBV_QP_EX_WITH_ATOMIC_WRITE}) != 0) {
    q.has_unseen_sends = current_->has_unseen_datagrams_ = true;
    current_->writes_.stop();
  }
  return qp;
}

void request_oracle::wr_atomic_write(ibv_qp_ex* qp, std::uint32_t rkey, std::uint64_t address,
                                     const void* word) {
  queue& q = queue_of(qp);
  ibv_sge operand{
      .addr = reinterpret_cast<std::uint64_t>(word), .length = sizeof(std::uint64_t), .lkey = 0};
  ibv_send_wr wr{};
  wr.wr_id = qp->wr_id;
  wr.opcode = IBV_WR_ATOMIC_WRITE;
  wr.send_flags = qp->wr_flags | IBV_SEND_INLINE;  // The word is taken here.
  wr.sg_list = &operand;
  wr.num_sge = 1;
  wr.wr.rdma.remote_addr = address;
  wr.wr.rdma.rkey = rkey;
  current_->sent(q, wr);
  ++q.batch;
  q.before.atomic_write(qp, rkey, address, word);
}

int request_oracle::wr_complete(ibv_qp_ex* qp) {
  queue& q = queue_of(qp);
  const int error = q.before.complete(qp);
  if (error != 0) current_->batch_not_sent(q);
  q.batch = 0;
  return error;
}

void request_oracle::wr_abort(ibv_qp_ex* qp) {
  queue& q = queue_of(qp);
  q.before.abort(qp);
  current_->batch_not_sent(q);
}

template <class Post>
int request_oracle::post_receives(const host_state& host, posted& to, ibv_recv_wr* first,
                                  ibv_recv_wr** bad, Post post) {
  std::size_t count = 0;
  for (const ibv_recv_wr* wr = first; wr != nullptr; wr = wr->next, ++count) {
    const request& made =
        to.add({.wr_id = wr->wr_id, .is_lent = true, .memory = {wr->sg_list, wr->num_sge}});
    memory_.lend(host, made.memory);
  }
  const int error = post();
  if (error != 0) {
    for (const ibv_recv_wr* wr = first; wr != *bad; wr = wr->next) --count;
    for (; count > 0; --count) {
      memory_.take_back(host, to.requests.back().memory);
      to.requests.pop_back();
    }
  }
  return error;
}

int request_oracle::post_recv(ibv_qp* qp, ibv_recv_wr* first, ibv_recv_wr** bad) {
  const context& on = current_->contexts_.at(qp->context);
  return current_->post_receives(*on.host, current_->queue_of(on, qp).receives, first, bad,
                                 [&] { return on.before.post_recv(qp, first, bad); });
}

int request_oracle::post_srq_recv(ibv_srq* srq, ibv_recv_wr* first, ibv_recv_wr** bad) {
  const context& on = current_->contexts_.at(srq->context);
  shared_queue& q = current_->shared_[srq];
  q.host = on.host;
  return current_->post_receives(*on.host, q.receives, first, bad,
                                 [&] { return on.before.post_srq_recv(srq, first, bad); });
}

int request_oracle::poll_cq(ibv_cq* cq, int most, ibv_wc* completions) {
  const context& on = current_->contexts_.at(cq->context);
  const int count = on.before.poll_cq(cq, most, completions);
  for (int n = 0; n < count; ++n) current_->completed(*on.host, cq, completions[n]);
  return count;
}

}  // namespace cordma::sim::detail
