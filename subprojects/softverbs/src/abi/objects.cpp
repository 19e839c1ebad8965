#include "abi/dispatch.hpp"
#include "abi/faults.hpp"
#include "object/soft_verbs.hpp"

// Protection domains, memory, queues and queue pairs.

namespace softverbs {

namespace {

int rereg_mr_soft(ibv_mr* mr, int flags, ibv_pd* pd, void* address, std::size_t bytes, int access) {
  if (const int error = entry::refused("ibv_rereg_mr", mr->context)) {
    errno = error;
    return IBV_REREG_MR_ERR_INPUT;  // "Old MR is valid", says ibv_rereg_mr(3).
  }
  return without_exceptions<int>(
      [&] { return verb::rereg_mr(mr, flags, pd, address, bytes, access); });
}

ibv_mr* reg_mr_soft(ibv_pd* pd, void* address, std::size_t bytes, std::uint64_t iova,
                    unsigned access) {
  return serve("ibv_reg_mr", pd->context, verb::reg_mr, pd, address, bytes, iova, access);
}

}  // namespace

}  // namespace softverbs

using namespace softverbs;

extern "C" {

ibv_pd* ibv_alloc_pd(ibv_context* ctx) {
  return dispatch<"ibv_alloc_pd">(ctx, verb::alloc_pd, ctx);
}
int ibv_dealloc_pd(ibv_pd* pd) {
  return dispatch_end<"ibv_dealloc_pd">(pd->context, verb::dealloc_pd, pd);
}

ibv_mr* ibv_reg_mr(ibv_pd* pd, void* address, std::size_t bytes, int access) {
  if (is_soft(pd->context))
    return reg_mr_soft(pd, address, bytes, reinterpret_cast<std::uintptr_t>(address),
                       static_cast<unsigned>(access));
  return real::call<"ibv_reg_mr">(ibv_reg_mr, pd, address, bytes, access);
}
ibv_mr* ibv_reg_mr_iova(ibv_pd* pd, void* address, std::size_t bytes, std::uint64_t iova,
                        int access) {
  if (is_soft(pd->context))
    return reg_mr_soft(pd, address, bytes, iova, static_cast<unsigned>(access));
  return real::call<"ibv_reg_mr_iova", "IBVERBS_1.7">(ibv_reg_mr_iova, pd, address, bytes, iova,
                                                      access);
}
ibv_mr* ibv_reg_mr_iova2(ibv_pd* pd, void* address, std::size_t bytes, std::uint64_t iova,
                         unsigned access) {
  if (is_soft(pd->context)) return reg_mr_soft(pd, address, bytes, iova, access);
  return real::call<"ibv_reg_mr_iova2", "IBVERBS_1.8">(ibv_reg_mr_iova2, pd, address, bytes, iova,
                                                       access);
}
ibv_mr* ibv_reg_dmabuf_mr(ibv_pd* pd, std::uint64_t offset, std::size_t bytes, std::uint64_t iova,
                          int fd, int access) {
  if (is_soft(pd->context))
    return serve("ibv_reg_dmabuf_mr", pd->context, verb::reg_dmabuf_mr, pd, offset, bytes, iova, fd,
                 static_cast<unsigned>(access));
  return real::call<"ibv_reg_dmabuf_mr", "IBVERBS_1.12">(ibv_reg_dmabuf_mr, pd, offset, bytes, iova,
                                                         fd, access);
}
int ibv_rereg_mr(ibv_mr* mr, int flags, ibv_pd* pd, void* address, std::size_t bytes, int access) {
  if (is_soft(mr->context)) return rereg_mr_soft(mr, flags, pd, address, bytes, access);
  return real::call<"ibv_rereg_mr">(ibv_rereg_mr, mr, flags, pd, address, bytes, access);
}
int ibv_dereg_mr(ibv_mr* mr) {
  return dispatch_end<"ibv_dereg_mr">(mr->context, verb::dereg_mr, mr);
}

ibv_pd* ibv_import_pd(ibv_context* ctx, std::uint32_t handle) {
  return real_only<"ibv_import_pd", "IBVERBS_1.10">(ctx, ibv_import_pd, ctx, handle);
}
void ibv_unimport_pd(ibv_pd* pd) {
  real_only<"ibv_unimport_pd", "IBVERBS_1.10">(pd->context, ibv_unimport_pd, pd);
}
ibv_mr* ibv_import_mr(ibv_pd* pd, std::uint32_t handle) {
  return real_only<"ibv_import_mr", "IBVERBS_1.10">(pd->context, ibv_import_mr, pd, handle);
}
void ibv_unimport_mr(ibv_mr* mr) {
  real_only<"ibv_unimport_mr", "IBVERBS_1.10">(mr->context, ibv_unimport_mr, mr);
}
ibv_dm* ibv_import_dm(ibv_context* ctx, std::uint32_t handle) {
  return real_only<"ibv_import_dm", "IBVERBS_1.13">(ctx, ibv_import_dm, ctx, handle);
}
void ibv_unimport_dm(ibv_dm* dm) {
  real_only<"ibv_unimport_dm", "IBVERBS_1.13">(dm->context, ibv_unimport_dm, dm);
}

ibv_comp_channel* ibv_create_comp_channel(ibv_context* ctx) {
  return dispatch<"ibv_create_comp_channel", "IBVERBS_1.0">(ctx, verb::create_comp_channel, ctx);
}
int ibv_destroy_comp_channel(ibv_comp_channel* channel) {
  return dispatch_end<"ibv_destroy_comp_channel", "IBVERBS_1.0">(
      channel->context, verb::destroy_comp_channel, channel);
}
ibv_cq* ibv_create_cq(ibv_context* ctx, int cqe, void* cq_context, ibv_comp_channel* channel,
                      int vector) {
  return dispatch<"ibv_create_cq">(ctx, verb::create_cq, ctx, cqe, cq_context, channel, vector);
}
int ibv_resize_cq(ibv_cq* cq, int cqe) {
  return dispatch<"ibv_resize_cq">(cq->context, verb::resize_cq, cq, cqe);
}
int ibv_destroy_cq(ibv_cq* cq) {
  faults::leaving note{cq};
  return note.ended(dispatch_end<"ibv_destroy_cq">(cq->context, verb::destroy_cq, cq));
}

ibv_srq* ibv_create_srq(ibv_pd* pd, ibv_srq_init_attr* attr) {
  return dispatch<"ibv_create_srq">(pd->context, verb::create_srq, pd, attr);
}
int ibv_modify_srq(ibv_srq* srq, ibv_srq_attr* attr, int mask) {
  return dispatch<"ibv_modify_srq">(srq->context, verb::modify_srq, srq, attr, mask);
}
int ibv_query_srq(ibv_srq* srq, ibv_srq_attr* attr) {
  return dispatch<"ibv_query_srq">(srq->context, verb::query_srq, srq, attr);
}
int ibv_destroy_srq(ibv_srq* srq) {
  return dispatch_end<"ibv_destroy_srq">(srq->context, verb::destroy_srq, srq);
}

ibv_qp* ibv_create_qp(ibv_pd* pd, ibv_qp_init_attr* attr) {
  return dispatch<"ibv_create_qp">(pd->context, verb::create_qp, pd, attr);
}
int ibv_modify_qp(ibv_qp* qp, ibv_qp_attr* attr, int mask) {
  return dispatch<"ibv_modify_qp">(qp->context, verb::modify_qp, qp, attr, mask);
}
int ibv_query_qp(ibv_qp* qp, ibv_qp_attr* attr, int mask, ibv_qp_init_attr* init_attr) {
  return dispatch<"ibv_query_qp">(qp->context, verb::query_qp, qp, attr, mask, init_attr);
}
int ibv_destroy_qp(ibv_qp* qp) {
  faults::leaving note{qp};
  return note.ended(dispatch_end<"ibv_destroy_qp">(qp->context, verb::destroy_qp, qp));
}
ibv_qp_ex* ibv_qp_to_qp_ex(ibv_qp* qp) {
  return is_soft(qp->context) ? verb::qp_to_qp_ex(qp)
                              : real::call<"ibv_qp_to_qp_ex", "IBVERBS_1.6">(ibv_qp_to_qp_ex, qp);
}
int ibv_query_qp_data_in_order(ibv_qp* qp, ibv_wr_opcode opcode, std::uint32_t flags) {
  // soft0 promises no order in which the bytes of a copy become visible: the CPU decides.
  constexpr int not_guaranteed = 0;
  return is_soft(qp->context) ? not_guaranteed
                              : real::call<"ibv_query_qp_data_in_order", "IBVERBS_1.14">(
                                    ibv_query_qp_data_in_order, qp, opcode, flags);
}
int ibv_set_ece(ibv_qp* qp, ibv_ece* ece) {
  return real_only<"ibv_set_ece", "IBVERBS_1.10">(qp->context, ibv_set_ece, qp, ece);
}
int ibv_query_ece(ibv_qp* qp, ibv_ece* ece) {
  return real_only<"ibv_query_ece", "IBVERBS_1.10">(qp->context, ibv_query_ece, qp, ece);
}
int ibv_attach_mcast(ibv_qp* qp, const ibv_gid* gid, std::uint16_t lid) {
  return dispatch<"ibv_attach_mcast">(qp->context, verb::attach_mcast, qp, gid, lid);
}
int ibv_detach_mcast(ibv_qp* qp, const ibv_gid* gid, std::uint16_t lid) {
  return dispatch<"ibv_detach_mcast">(qp->context, verb::detach_mcast, qp, gid, lid);
}

}  // extern "C"
