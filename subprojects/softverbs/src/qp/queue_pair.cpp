#include "qp/queue_pair.hpp"

#include "multicast/membership.hpp"
#include "node/simulation.hpp"
#include "object/context.hpp"
#include "object/counted.hpp"
#include "object/protection_domain.hpp"
#include "object/soft_verbs.hpp"
#include "object/xrc_domain.hpp"
#include "qp/change_lock.hpp"
#include "qp/queue_memory.hpp"
#include "qp/relay.hpp"
#include "qp/send_builder.hpp"

#include <algorithm>
#include <cerrno>
#include <memory>
#include <mutex>
#include <utility>

namespace softverbs {
namespace {

constexpr std::uint64_t datagram_operations = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;
constexpr std::uint64_t unreliable_operations =
    datagram_operations | IBV_QP_EX_WITH_SEND_WITH_INV | IBV_QP_EX_WITH_RDMA_WRITE |
    IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_BIND_MW;
constexpr std::uint64_t reliable_operations =
    unreliable_operations | IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
    IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD | IBV_QP_EX_WITH_ATOMIC_WRITE;

std::uint64_t operations_of(ibv_qp_type type) {
  switch (type) {
    case IBV_QPT_RC:
    case IBV_QPT_XRC_SEND: return reliable_operations;
    case IBV_QPT_UC: return unreliable_operations;
    case IBV_QPT_UD: return datagram_operations;
    default: return 0;
  }
}

int check_capabilities(const ibv_qp_cap& cap) {
  const auto& device = limits();
  const auto wrs_max = static_cast<std::uint32_t>(device.max_qp_wr);
  const auto list_max = std::min(static_cast<std::uint32_t>(device.max_sge), request_sges_max);
  const bool fits = cap.max_send_wr <= wrs_max && cap.max_recv_wr <= wrs_max &&
                    cap.max_send_sge <= list_max && cap.max_recv_sge <= list_max &&
                    cap.max_inline_data <= device.inline_bytes;
  return fits ? 0 : EINVAL;
}

int check(const ibv_pd* pd, const ibv_qp_init_attr& attr) {
  if (operations_of(attr.qp_type) == 0) return EOPNOTSUPP;
  const bool receives = attr.qp_type != IBV_QPT_XRC_SEND;
  if (pd == nullptr || attr.send_cq == nullptr || (receives && attr.recv_cq == nullptr))
    return EINVAL;
  if (attr.send_cq->context != pd->context) return EINVAL;
  if (receives && attr.recv_cq->context != pd->context) return EINVAL;
  if (!receives && attr.srq != nullptr) return EINVAL;
  if (attr.srq != nullptr && attr.srq->context != pd->context) return EINVAL;
  // The receive queues of XRC's domains serve targets alone.
  if (attr.srq != nullptr && reinterpret_cast<shared_receive_queue*>(attr.srq)->xrcd != nullptr)
    return EINVAL;
  return check_capabilities(attr.cap);
}

pattern pattern_of(ibv_qp_type type) {
  switch (type) {
    case IBV_QPT_RC: return pattern::rc;
    case IBV_QPT_UC: return pattern::uc;
    case IBV_QPT_UD: return pattern::ud;
    default: return pattern::xrc;
  }
}

/// Makes a queue pair without a number. XRC: a target has no `pd`, and a proxy no `ctx` either.
owned_queue_pair make(node& local_node, ibv_context* ctx, ibv_pd* pd,
                      const ibv_qp_init_attr& attr) {
  const ibv_qp_cap& cap = attr.cap;
  const domain_memory* const memory = memory_of(pd);
  receive_ring receives{cap.max_recv_wr, cap.max_recv_sge, memory};
  const std::size_t sends_bytes = send_wqes::bytes_for(cap);
  constexpr std::size_t line = alignof(queue_pair);
  void* const block_of_program = memory == nullptr ? nullptr
                                                   : memory->take(sends_bytes + sizeof(queue_pair),
                                                                  line, queue_resource::queue_pair);
  void* const block = block_of_program != nullptr
                          ? block_of_program
                          : allocate_queue(sends_bytes + sizeof(queue_pair));
  void* const address = static_cast<std::byte*>(block) + sends_bytes;
  owned_queue_pair qp{new (address) queue_pair{
      // The rest cannot throw.
      .handle = {},
      .local_node = &local_node,
      .slot = nullptr,
      .pd = pd != nullptr ? origin_of(pd) : nullptr,
      .terms = {},
      .wqes = send_wqes{cap},
      .signals_all = attr.sq_sig_all != 0,
      .kind = std::uint8_t(attr.qp_type),
      .transport = pattern_of(attr.qp_type),
      .sends = {},
      .requester = {},
      .delays = nullptr,
      .queues = nullptr,
      .rate = nullptr,
      .responder = {},
      .receives = std::move(receives),
      .peer = {},
      .init = attr,
      .memory = block_of_program != nullptr ? memory : nullptr,
  }};
  ibv_qp& handle = qp->handle.qp_base;
  handle.context = ctx;
  handle.qp_context = attr.qp_context;
  handle.pd = pd;
  handle.send_cq = attr.send_cq;
  handle.recv_cq = attr.recv_cq;
  handle.srq = attr.srq;
  handle.state = IBV_QPS_RESET;
  handle.qp_type = attr.qp_type;
  ::pthread_mutex_init(&handle.mutex, nullptr);
  ::pthread_cond_init(&handle.cond, nullptr);
  return qp;
}

/// Gives the queue pair a number. 0: none is left.
std::uint32_t settle(queue_pair& qp) {
  const std::uint32_t qpn = qp.local_node->allocate_qpn();
  if (qpn == 0) return 0;
  qp.handle.qp_base.qp_num = qp.handle.qp_base.handle = qp.shown_number = qpn;
  qp.slot = qp.local_node->find(qpn);
  const std::lock_guard send{qp.slot->send};
  const std::lock_guard receive{qp.slot->receive};
  // WQE indices continue after those of the slot's last queue pair.
  qp.sends.built = qp.sends.posted = qp.slot->released.load();
  qp.sends.next = qp.sends.completed = qp.sends.reported = qp.sends.posted;
  qp.slot->expected = {};
  qp.slot->qp = &qp;
  return qpn;
}

void count_users(queue_pair& qp, bool attach) {
  const auto change = attach ? 1u : ~0u;
  if (qp.domain != nullptr) {
    soft(qp.domain).users.fetch_add(change);
    return;
  }
  qp.send_cq().users.fetch_add(change);
  if (qp.handle.qp_base.recv_cq != nullptr) qp.receive_cq().users.fetch_add(change);
  if (qp.srq() != nullptr) qp.srq()->users.fetch_add(change);
}

/// The protection domain that counts the queue pair. Null: targets of XRC have none.
ibv_pd* counting_pd(const queue_pair& qp) noexcept {
  return qp.domain != nullptr ? nullptr : qp.handle.qp_base.pd;
}

/// Counts a queue pair and gives it a number. Null with errno: there is none for it.
ibv_qp* number(owned_queue_pair qp) {
  object_count& queue_pairs = qp->local_node->counts().queue_pairs;
  if (!queue_pairs.add(limits().max_qp)) return fail(ENOMEM);
  if (settle(*qp) == 0) {
    queue_pairs.remove();
    return fail(ENOMEM);
  }
  count_users(*qp, true);
  if (ibv_pd* const pd = counting_pd(*qp)) soft(pd).users.fetch_add(1);
  return &qp.release()->handle.qp_base;
}

/// Creates a queue pair. `operations`: those of ibv_wr_*; `extended`: the program requested them.
ibv_qp* create(ibv_pd* pd, ibv_qp_init_attr attr, ibv_qp_cap& granted, bool extended,
               std::uint64_t operations) {
  // ibv_create_qp(3): the receive capabilities are ignored with an SRQ.
  const bool is_initiator = attr.qp_type == IBV_QPT_XRC_SEND;
  if (attr.srq != nullptr || is_initiator) attr.cap.max_recv_wr = attr.cap.max_recv_sge = 0;
  if (is_initiator) attr.recv_cq = nullptr;
  if (int error = check(pd, attr)) return fail(error);
  if ((operations & ~operations_of(attr.qp_type)) != 0) return fail(EOPNOTSUPP);
  if ((operations & IBV_QP_EX_WITH_ATOMIC_WRITE) != 0 && !limits().writes_atomically)
    return fail(EOPNOTSUPP);
  // The space of a scatter list is there for inline data, too. rdma_xclient asks for none, and uses
  // it, as other devices have some.
  if (attr.cap.max_inline_data == 0)
    attr.cap.max_inline_data = std::min(
        limits().inline_bytes, static_cast<std::uint32_t>(attr.cap.max_send_sge * sizeof(ibv_sge)));
  owned_queue_pair qp = make(*soft(pd->context).local_node, pd->context, pd, attr);
  if (is_initiator) qp->queues = std::make_unique<std::uint32_t[]>(qp->wqes.capacity());
  qp->send_ops = operations;
  if (extended) set_wr_api(*qp);
  granted = attr.cap;
  return number(std::move(qp));
}

/// Creates a target of XRC.
ibv_qp* create_target(ibv_context* ctx, const ibv_qp_init_attr_ex& attr) {
  if ((attr.comp_mask & ~std::uint32_t{IBV_QP_INIT_ATTR_XRCD | IBV_QP_INIT_ATTR_PD}) != 0)
    return fail(EOPNOTSUPP);
  if ((attr.comp_mask & IBV_QP_INIT_ATTR_XRCD) == 0 || attr.xrcd == nullptr ||
      attr.xrcd->context != ctx)
    return fail(EINVAL);
  ibv_qp_init_attr base{};
  base.qp_context = attr.qp_context;
  base.qp_type = attr.qp_type;
  owned_queue_pair qp = make(*soft(ctx).local_node, ctx, nullptr, base);
  qp->domain = attr.xrcd;
  qp->domain_id = soft(attr.xrcd).id;
  qp->passed_on = std::make_unique<relay>();
  // librdmacm gives one, and makes the receive queue in what it finds here.
  if ((attr.comp_mask & IBV_QP_INIT_ATTR_PD) != 0) qp->handle.qp_base.pd = attr.pd;
  return number(std::move(qp));
}

/// Removes the queue pair from its slot. Its CQEs then free no WQEs of the slot's next queue pair.
void unsettle(queue_pair& qp) {
  {
    const change_lock send{qp};
    enter_error(qp);  // Ends a message that a peer has begun: see modify_qp.
    const std::lock_guard receive{qp.slot->receive};
    orphan_answers(qp);
    release_all(qp);
    qp.slot->qp = nullptr;
  }
  // An initiator in this process looks whether its target is still there.
  if (qp.passed_on) qp.local_node->kick(qp.terms.peer_qpn);
  const std::uint32_t qpn = qp.number();
  qp.local_node->wake_at(qpn, clock::time_point::max());
  qp.local_node->free_qpn(qpn);
}

/// Drops unread events of the queue pair, and waits until the program has acknowledged the read
/// ones.
void await_acknowledgements(ibv_qp& handle) {
  const std::uint32_t read = soft(handle.context).async.forget(&handle);
  ::pthread_mutex_lock(&handle.mutex);
  while (handle.events_completed != read) ::pthread_cond_wait(&handle.cond, &handle.mutex);
  ::pthread_mutex_unlock(&handle.mutex);
  ::pthread_cond_destroy(&handle.cond);
  ::pthread_mutex_destroy(&handle.mutex);
}

}  // namespace

owned_queue_pair make_hidden(node& local_node) {
  ibv_qp_init_attr attr{};
  attr.qp_type = IBV_QPT_XRC_RECV;
  return make(local_node, nullptr, nullptr, attr);
}

void queue_pair_deleter::operator()(queue_pair* qp) const noexcept {
  const std::size_t sends_bytes = send_wqes::bytes_for(qp->init.cap);
  void* const block = reinterpret_cast<std::byte*>(qp) - sends_bytes;
  const domain_memory* const memory = qp->memory;
  std::destroy_at(qp);
  if (memory != nullptr) return memory->give_back(block, queue_resource::queue_pair);
  free_queue(block, sends_bytes + sizeof(queue_pair));
}

void release_all(queue_pair& qp) noexcept {
  // A poll only raises `released`, so the remaining CQEs change nothing.
  qp.sends.next = qp.sends.completed = qp.sends.reported = qp.sends.posted;
  qp.slot->released.store(qp.sends.posted);
}

namespace verb {

ibv_qp* create_qp(ibv_pd* pd, ibv_qp_init_attr* attr) {
  return create(pd, *attr, attr->cap, false, 0);
}

ibv_qp* create_qp_ex(ibv_context* ctx, ibv_qp_init_attr_ex* attr) {
  constexpr std::uint32_t known = (IBV_QP_INIT_ATTR_SEND_OPS_FLAGS << 1) - 1;
  if (attr->qp_type == IBV_QPT_XRC_RECV) return create_target(ctx, *attr);
  constexpr std::uint32_t served =
      IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  if ((attr->comp_mask & ~known) != 0) return fail(EINVAL);
  if ((attr->comp_mask & ~served) != 0) return fail(EOPNOTSUPP);
  // A queue pair never gets its own multicast datagrams.
  const std::uint32_t flags_served =
      attr->qp_type == IBV_QPT_UD ? unsigned{IBV_QP_CREATE_BLOCK_SELF_MCAST_LB} : 0u;
  if ((attr->comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS) != 0 &&
      (attr->create_flags & ~flags_served) != 0)
    return fail(EOPNOTSUPP);
  if ((attr->comp_mask & IBV_QP_INIT_ATTR_PD) == 0 || attr->pd == nullptr ||
      attr->pd->context != ctx)
    return fail(EINVAL);
  const bool extended = (attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) != 0;
  const ibv_qp_init_attr base{attr->qp_context, attr->send_cq, attr->recv_cq,   attr->srq,
                              attr->cap,        attr->qp_type, attr->sq_sig_all};
  return create(attr->pd, base, attr->cap, extended, extended ? attr->send_ops_flags : 0);
}

int destroy_qp(ibv_qp* handle) {
  group_membership* const groups = soft(handle->context).local_node->groups();
  // The kernel, too, refuses to destroy a queue pair that is attached to a group.
  if (groups != nullptr && groups->is_attached(handle->qp_num)) return EBUSY;
  owned_queue_pair qp{reinterpret_cast<queue_pair*>(handle)};
  unsettle(*qp);
  await_acknowledgements(*handle);
  count_users(*qp, false);
  ibv_pd* const pd = counting_pd(*qp);
  if (simulated_host* const host = qp->local_node->simulated()) host->on_destroyed(handle);
  object_counts& counts = qp->local_node->counts();
  qp.reset();
  if (pd != nullptr) soft(pd).users.fetch_sub(1);  // The memory has gone back to a parent domain.
  counts.queue_pairs.remove();
  return 0;
}

int query_qp(ibv_qp* handle, ibv_qp_attr* attr, int mask, ibv_qp_init_attr* init_attr) {
  auto& qp = *reinterpret_cast<queue_pair*>(handle);
  const std::lock_guard send{qp.slot->send};
  const std::lock_guard receive{qp.slot->receive};
  *attr = qp.attr;
  attr->qp_state = attr->cur_qp_state = qp.state.load();
  attr->sq_psn = qp.requester.psn;
  attr->rq_psn = qp.slot->expected.psn;
  attr->sq_draining = qp.is_draining ? 1 : 0;
  attr->cap = qp.init.cap;
  *init_attr = qp.init;
  if ((mask & IBV_QP_STATE) != 0) handle->state = attr->qp_state;
  return 0;
}

ibv_qp_ex* qp_to_qp_ex(ibv_qp* handle) {
  auto& qp = *reinterpret_cast<queue_pair*>(handle);
  return qp.handle.wr_start != nullptr ? &qp.handle : nullptr;
}

}  // namespace verb
}  // namespace softverbs
