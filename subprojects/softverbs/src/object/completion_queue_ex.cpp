#include "object/completion_queue_ex.hpp"

#include "node/node.hpp"
#include "object/context.hpp"
#include "object/counted.hpp"
#include "object/protection_domain.hpp"
#include "object/soft_verbs.hpp"

#include <cerrno>

// ibv_create_cq_ex(3): a program reads the queue entry by entry, by functions of the handle.

namespace softverbs {
namespace {

constexpr std::uint64_t served_fields = std::uint64_t{IBV_WC_STANDARD_FLAGS} |
                                        IBV_WC_EX_WITH_COMPLETION_TIMESTAMP |
                                        IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK;
constexpr std::uint32_t served_flags =
    IBV_CREATE_CQ_ATTR_SINGLE_THREADED | IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN;

completion_queue& behind(ibv_cq_ex* cq) noexcept {
  return *reinterpret_cast<completion_queue*>(cq);
}

const completion& current(ibv_cq_ex* cq) noexcept { return behind(cq).polled; }

void show(completion_queue& cq) noexcept {
  cq.handle.status = cq.polled.wc.status;
  cq.handle.wr_id = cq.polled.wc.wr_id;
}

int next_poll(ibv_cq_ex* handle) {
  completion_queue& cq = behind(handle);
  if (!take_one(cq)) return ENOENT;
  show(cq);
  return 0;
}

void end_poll(ibv_cq_ex* handle) { behind(handle).polling.unlock(); }

}  // namespace

namespace verb {

/// Locks the queue for this thread until end_poll.
int start_poll(ibv_cq_ex* handle, ibv_poll_cq_attr* attr) {
  completion_queue& cq = behind(handle);
  if (attr->comp_mask != 0) return EINVAL;
  cq.polling.lock();
  if (next_poll(handle) == 0) return 0;
  cq.owner->local_node->on_empty_poll(cq);
  if (next_poll(handle) == 0) return 0;
  cq.polling.unlock();
  return ENOENT;
}

ibv_cq_ex* create_cq_ex(ibv_context* ctx, ibv_cq_init_attr_ex* attr) {
  const bool flagged = (attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS) != 0;
  constexpr std::uint32_t served_attributes =
      IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD;
  if ((attr->comp_mask & ~served_attributes) != 0 || (attr->wc_flags & ~served_fields) != 0 ||
      (flagged && (attr->flags & ~served_flags) != 0)) {
    errno = EOPNOTSUPP;
    return nullptr;
  }
  ibv_pd* const domain =
      (attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_PD) != 0 ? attr->parent_domain : nullptr;
  if ((attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_PD) != 0 && !is_parent_domain(domain, ctx))
    return fail(EINVAL);
  const bool timestamps = (attr->wc_flags & (IBV_WC_EX_WITH_COMPLETION_TIMESTAMP |
                                             IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK)) != 0;
  completion_queue* cq = make_completion_queue(ctx, attr->cqe, attr->cq_context, attr->channel,
                                               attr->comp_vector, timestamps, domain);
  if (cq == nullptr) return nullptr;
  cq->ignores_overrun = flagged && (attr->flags & IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN) != 0;
  ibv_cq_ex& handle = cq->handle;
  handle.start_poll = verb::start_poll;
  handle.next_poll = next_poll;
  handle.end_poll = end_poll;
  handle.read_opcode = [](ibv_cq_ex* from) { return current(from).wc.opcode; };
  handle.read_vendor_err = [](ibv_cq_ex* from) { return current(from).wc.vendor_err; };
  handle.read_byte_len = [](ibv_cq_ex* from) { return current(from).wc.byte_len; };
  handle.read_imm_data = [](ibv_cq_ex* from) { return current(from).wc.imm_data; };
  handle.read_qp_num = [](ibv_cq_ex* from) { return current(from).wc.qp_num; };
  handle.read_src_qp = [](ibv_cq_ex* from) { return current(from).wc.src_qp; };
  handle.read_wc_flags = [](ibv_cq_ex* from) { return current(from).wc.wc_flags; };
  handle.read_slid = [](ibv_cq_ex* from) { return std::uint32_t{current(from).wc.slid}; };
  handle.read_sl = [](ibv_cq_ex* from) { return current(from).wc.sl; };
  handle.read_dlid_path_bits = [](ibv_cq_ex* from) { return current(from).wc.dlid_path_bits; };
  // The device's clock is the wall clock: query_rt_values says so.
  handle.read_completion_ts = [](ibv_cq_ex* from) { return behind(from).polled_timestamp; };
  handle.read_completion_wallclock_ns = handle.read_completion_ts;
  return &handle;
}

}  // namespace verb
}  // namespace softverbs
