#include "node/simulation.hpp"
#include "object/context.hpp"
#include "object/counted.hpp"
#include "object/protection_domain.hpp"
#include "object/soft_verbs.hpp"
#include "object/xrc_queues.hpp"
#include "queue/completion_queue.hpp"
#include "queue/receive_queue.hpp"

#include <cerrno>
#include <memory>

namespace softverbs {
namespace {

std::atomic<std::uint32_t> next_number{1};

shared_receive_queue& behind(ibv_srq* srq) noexcept {
  return *reinterpret_cast<shared_receive_queue*>(srq);
}

/// Makes the queue one of an XRC domain. False: there is no number for it.
bool enter_domain(shared_receive_queue& srq, ibv_context& ctx, ibv_xrcd& xrcd, ibv_cq& cq) {
  srq.xrcd = &xrcd;
  srq.cq = &cq;
  if (list_xrc_queue(*softverbs::soft(&ctx).local_node, srq) == 0) return false;
  softverbs::soft(&xrcd).users.fetch_add(1);
  reinterpret_cast<completion_queue&>(cq).users.fetch_add(1);
  return true;
}

void leave_domain(const shared_receive_queue& srq) noexcept {
  unlist_xrc_queue(srq);
  softverbs::soft(srq.xrcd).users.fetch_sub(1);
  reinterpret_cast<completion_queue*>(srq.cq)->users.fetch_sub(1);
}

/// `xrcd`, `cq`: of a queue of an XRC domain, or both null.
ibv_srq* create(ibv_pd* pd, void* srq_context, ibv_srq_attr& attr, ibv_xrcd* xrcd = nullptr,
                ibv_cq* cq = nullptr) {
  if (limits().max_srq == 0) return fail(EOPNOTSUPP);
  if (attr.max_wr == 0 || attr.max_wr > static_cast<std::uint32_t>(limits().max_srq_wr) ||
      attr.max_sge > static_cast<std::uint32_t>(limits().max_srq_sge))
    return fail(EINVAL);
  auto srq = std::make_unique<shared_receive_queue>(attr.max_wr, attr.max_sge, memory_of(pd));
  object_count& shared_queues = counts_of(pd->context).shared_queues;
  if (!shared_queues.add(limits().max_srq)) return fail(ENOMEM);
  srq->handle.context = pd->context;
  srq->handle.srq_context = srq_context;
  srq->handle.pd = pd;
  srq->pd = origin_of(pd);
  ::pthread_mutex_init(&srq->handle.mutex, nullptr);
  ::pthread_cond_init(&srq->handle.cond, nullptr);
  // Once the queue is in its domain, messages find it.
  if (xrcd == nullptr) {
    srq->number = next_number.fetch_add(1);
  } else if (!enter_domain(*srq, *pd->context, *xrcd, *cq)) {
    shared_queues.remove();
    return fail(ENOMEM);
  }
  softverbs::soft(pd).users.fetch_add(1);
  return &srq.release()->handle;
}

}  // namespace

namespace verb {

ibv_srq* create_srq(ibv_pd* pd, ibv_srq_init_attr* attr) {
  return create(pd, attr->srq_context, attr->attr);
}

ibv_srq* create_srq_ex(ibv_context* ctx, ibv_srq_init_attr_ex* attr) {
  const ibv_srq_type type =
      (attr->comp_mask & IBV_SRQ_INIT_ATTR_TYPE) != 0 ? attr->srq_type : IBV_SRQT_BASIC;
  constexpr std::uint32_t of_xrc = IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
  const std::uint32_t served =
      IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | (type == IBV_SRQT_XRC ? of_xrc : 0);
  if ((type != IBV_SRQT_BASIC && type != IBV_SRQT_XRC) || (attr->comp_mask & ~served) != 0)
    return fail(EOPNOTSUPP);
  if ((attr->comp_mask & IBV_SRQ_INIT_ATTR_PD) == 0 || attr->pd->context != ctx)
    return fail(EINVAL);
  if (type == IBV_SRQT_BASIC) return create(attr->pd, attr->srq_context, attr->attr);
  if ((attr->comp_mask & of_xrc) != of_xrc || attr->xrcd->context != ctx ||
      attr->cq->context != ctx)
    return fail(EINVAL);
  return create(attr->pd, attr->srq_context, attr->attr, attr->xrcd, attr->cq);
}

int modify_srq(ibv_srq* handle, ibv_srq_attr* attr, int mask) {
  if ((mask & ~(IBV_SRQ_LIMIT | IBV_SRQ_MAX_WR)) != 0) return EINVAL;
  if ((mask & IBV_SRQ_MAX_WR) != 0) return EOPNOTSUPP;  // No IBV_DEVICE_SRQ_RESIZE.
  shared_receive_queue& srq = behind(handle);
  const std::lock_guard lock{srq.mutex};
  if ((mask & IBV_SRQ_LIMIT) != 0) {
    if (attr->srq_limit > srq.ring.capacity()) return EINVAL;
    srq.limit = attr->srq_limit;
  }
  return 0;
}

int query_srq(ibv_srq* handle, ibv_srq_attr* attr) {
  shared_receive_queue& srq = behind(handle);
  const std::lock_guard lock{srq.mutex};
  *attr = {.max_wr = srq.ring.capacity(), .max_sge = srq.ring.sges_max(), .srq_limit = srq.limit};
  return 0;
}

int destroy_srq(ibv_srq* handle) {
  shared_receive_queue& srq = behind(handle);
  if (srq.users.load() != 0) return EBUSY;
  if (srq.xrcd != nullptr) leave_domain(srq);
  const std::uint32_t taken = softverbs::soft(handle->context).async.forget(handle);
  ::pthread_mutex_lock(&handle->mutex);
  while (handle->events_completed != taken) ::pthread_cond_wait(&handle->cond, &handle->mutex);
  ::pthread_mutex_unlock(&handle->mutex);
  ::pthread_cond_destroy(&handle->cond);
  ::pthread_mutex_destroy(&handle->mutex);
  ibv_pd* const pd = handle->pd;
  if (simulated_host* const host = softverbs::soft(handle->context).local_node->simulated())
    host->on_destroyed(handle);
  object_counts& counts = counts_of(handle->context);
  delete &srq;
  softverbs::soft(pd).users.fetch_sub(1);  // The memory has gone back to a parent domain.
  counts.shared_queues.remove();
  return 0;
}

int post_srq_recv(ibv_srq* handle, ibv_recv_wr* wr, ibv_recv_wr** bad_wr) {
  shared_receive_queue& srq = behind(handle);
  const std::lock_guard lock{srq.mutex};
  for (; wr != nullptr; wr = wr->next) {
    const int error = srq.ring.push(*wr);
    if (error == 0) continue;
    if (bad_wr != nullptr) *bad_wr = wr;
    return error;
  }
  return 0;
}

int get_srq_num(ibv_srq* srq, std::uint32_t* number) {
  *number = behind(srq).number;
  return 0;
}

}  // namespace verb
}  // namespace softverbs
