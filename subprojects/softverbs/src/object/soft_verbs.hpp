#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>

// soft0's implementation of each verb, with the signature and the errors of the man page (0 or an
// errno value; NULL with errno). abi/ calls them for soft0's objects and puts them into
// verbs_context. The verbs check all arguments, except that an object is valid.

namespace softverbs::verb {

// object/protection_domain.cpp
ibv_pd* alloc_pd(ibv_context* ctx);
int dealloc_pd(ibv_pd* pd);
ibv_td* alloc_td(ibv_context* ctx, ibv_td_init_attr* attr);
int dealloc_td(ibv_td* td);
ibv_pd* alloc_parent_domain(ibv_context* ctx, ibv_parent_domain_init_attr* attr);
// object/xrc_domain.cpp
ibv_xrcd* open_xrcd(ibv_context* ctx, ibv_xrcd_init_attr* attr);
int close_xrcd(ibv_xrcd* xrcd);
// object/memory_region.cpp
ibv_mr* reg_mr(ibv_pd* pd, void* address, std::size_t length, std::uint64_t iova, unsigned access);
ibv_mr* reg_dmabuf_mr(ibv_pd* pd, std::uint64_t offset, std::size_t length, std::uint64_t iova,
                      int fd, unsigned access);
int rereg_mr(ibv_mr* mr, int flags, ibv_pd* pd, void* address, std::size_t length, int access);
int dereg_mr(ibv_mr* mr);
// object/advice.cpp
int advise_mr(ibv_pd* pd, ibv_advise_mr_advice advice, std::uint32_t flags, ibv_sge* list,
              std::uint32_t count);
// object/memory_window.cpp
ibv_mw* alloc_mw(ibv_pd* pd, ibv_mw_type type);
int dealloc_mw(ibv_mw* mw);

// object/completion_queue.cpp, completion_queue_ex.cpp, completion_channel.cpp
ibv_comp_channel* create_comp_channel(ibv_context* ctx);
int destroy_comp_channel(ibv_comp_channel* channel);
ibv_cq* create_cq(ibv_context* ctx, int cqe, void* cq_context, ibv_comp_channel* channel,
                  int vector);
ibv_cq_ex* create_cq_ex(ibv_context* ctx, ibv_cq_init_attr_ex* attr);
int start_poll(ibv_cq_ex* cq, ibv_poll_cq_attr* attr);
int resize_cq(ibv_cq* cq, int cqe);
int destroy_cq(ibv_cq* cq);
int poll_cq(ibv_cq* cq, int cqes_max, ibv_wc* completions);
int req_notify_cq(ibv_cq* cq, int solicited_only);
int get_cq_event(ibv_comp_channel* channel, ibv_cq** cq, void** cq_context);
// ibv_ack_cq_events is inline for all devices: it counts in the public structure.

// object/shared_receive_queue.cpp
ibv_srq* create_srq(ibv_pd* pd, ibv_srq_init_attr* attr);
ibv_srq* create_srq_ex(ibv_context* ctx, ibv_srq_init_attr_ex* attr);
int modify_srq(ibv_srq* srq, ibv_srq_attr* attr, int mask);
int query_srq(ibv_srq* srq, ibv_srq_attr* attr);
int destroy_srq(ibv_srq* srq);
int post_srq_recv(ibv_srq* srq, ibv_recv_wr* wr, ibv_recv_wr** bad_wr);
int get_srq_num(ibv_srq* srq, std::uint32_t* number);

// object/address_handle.cpp
ibv_ah* create_ah(ibv_pd* pd, ibv_ah_attr* attr);
int destroy_ah(ibv_ah* ah);

// qp/
ibv_qp* create_qp(ibv_pd* pd, ibv_qp_init_attr* attr);
ibv_qp* create_qp_ex(ibv_context* ctx, ibv_qp_init_attr_ex* attr);
int modify_qp(ibv_qp* qp, ibv_qp_attr* attr, int mask);
int modify_qp_rate_limit(ibv_qp* qp, ibv_qp_rate_limit_attr* attr);
int query_qp(ibv_qp* qp, ibv_qp_attr* attr, int mask, ibv_qp_init_attr* init_attr);
int destroy_qp(ibv_qp* qp);
int post_send(ibv_qp* qp, ibv_send_wr* wr, ibv_send_wr** bad_wr);
int post_recv(ibv_qp* qp, ibv_recv_wr* wr, ibv_recv_wr** bad_wr);
int bind_mw(ibv_qp* qp, ibv_mw* mw, ibv_mw_bind* bind);  ///< type 1
ibv_qp_ex* qp_to_qp_ex(ibv_qp* qp);
int wr_complete(ibv_qp_ex* qp);
int attach_mcast(ibv_qp* qp, const union ibv_gid* group, std::uint16_t lid);
int detach_mcast(ibv_qp* qp, const union ibv_gid* group, std::uint16_t lid);

}  // namespace softverbs::verb
