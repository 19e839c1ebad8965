#include "object/protection_domain.hpp"
#include "object/soft_verbs.hpp"
#include "qp/queue_pair.hpp"
#include "qp/send_builder.hpp"

#include <cerrno>
#include <mutex>

namespace softverbs {

int check_bind(const queue_pair& qp, const ibv_mw* window, ibv_mw_type type,
               const ibv_mw_bind_info& info) noexcept {
  if (window == nullptr || window->type != type) return EINVAL;
  if (window->context != qp.handle.qp_base.context) return EINVAL;
  return info.mr == nullptr && (info.addr != 0 || info.length != 0) ? EINVAL : 0;
}

namespace {

/// Waits for an open batch, whose requests come first.
std::unique_lock<adaptive_mutex> lock_to_post(queue_pair& qp) {
  std::unique_lock send{qp.slot->send};
  while (qp.in_batch) {
    send.unlock();
    {
      const std::lock_guard over{qp.batch};
    }
    send.lock();
  }
  return send;
}

/// Prefetches the lines of a local peer while the request is built: with a thousand queue pairs,
/// they are in no near cache.
void prefetch_peer(const qp_slot& slot) noexcept {
  const queue_pair* const peer = slot.qp.load(std::memory_order_relaxed);
  if (peer == nullptr) return;
  __builtin_prefetch(&peer->local_node);
}

}  // namespace

namespace verb {

int post_send(ibv_qp* handle, ibv_send_wr* wr, ibv_send_wr** bad_wr) {
  auto& qp = *reinterpret_cast<queue_pair*>(handle);
  const qp_slot* const peer = qp.peer_slot.load(std::memory_order_relaxed);
  if (peer != nullptr) __builtin_prefetch(&peer->receive, 1);
  const auto send = lock_to_post(qp);
  if (peer != nullptr) prefetch_peer(*peer);
  const std::uint64_t start = qp.sends.posted;
  int error = 0;
  for (; wr != nullptr; wr = wr->next) {
    if (wr->opcode == IBV_WR_BIND_MW)
      error = check_bind(qp, wr->bind_mw.mw, IBV_MW_TYPE_2, wr->bind_mw.bind_info);
    if (error == 0) error = enqueue(qp, *wr);
    if (error == 0) continue;
    if (bad_wr != nullptr) *bad_wr = wr;
    break;
  }
  if (qp.sends.posted != start) execute_posted(qp, qp.sends.posted - start);
  return error;
}

int post_recv(ibv_qp* handle, ibv_recv_wr* wr, ibv_recv_wr** bad_wr) {
  auto& qp = *reinterpret_cast<queue_pair*>(handle);
  int error = 0;
  bool flush_now = false;
  {
    const std::lock_guard receive{qp.slot->receive};
    const ibv_qp_state state = qp.state.load();
    for (; wr != nullptr; wr = wr->next) {
      error = qp.srq() != nullptr || state == IBV_QPS_RESET ? EINVAL : qp.receives.push(*wr);
      if (error == 0) continue;
      if (bad_wr != nullptr) *bad_wr = wr;
      break;
    }
    // The state is read after queueing: a thread that moves the QP to ERR later flushes the
    // request.
    flush_now = qp.state.load() == IBV_QPS_ERR && !qp.receives.empty();
  }
  if (flush_now) {
    const std::lock_guard send{qp.slot->send};
    const std::lock_guard receive{qp.slot->receive};
    if (qp.state.load() == IBV_QPS_ERR) flush(qp);
  }
  return error;
}

int bind_mw(ibv_qp* handle, ibv_mw* mw, ibv_mw_bind* bind) {
  auto& qp = *reinterpret_cast<queue_pair*>(handle);
  if (int error = check_bind(qp, mw, IBV_MW_TYPE_1, bind->bind_info)) return error;
  if (origin_of(mw->pd) != qp.pd) return EPERM;
  const ibv_mr* const region = bind->bind_info.mr;
  if (region != nullptr && origin_of(region->pd) != qp.pd) return EPERM;
  ibv_send_wr wr{};
  wr.wr_id = bind->wr_id;
  wr.opcode = IBV_WR_BIND_MW;
  wr.send_flags = bind->send_flags;
  wr.bind_mw = {mw, ibv_inc_rkey(mw->rkey), bind->bind_info};
  const auto send = lock_to_post(qp);
  if (int error = enqueue(qp, wr)) return error;
  mw->rkey = wr.bind_mw.rkey;  // Set before the CQE can be polled.
  execute(qp);
  return 0;
}

}  // namespace verb
}  // namespace softverbs
