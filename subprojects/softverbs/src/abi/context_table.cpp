#include "abi/attributes.hpp"
#include "abi/dispatch.hpp"
#include "object/soft_verbs.hpp"

// The verbs that programs call through the context: the fast ones and the extended ones. A null
// member is a verb that soft0 lacks: <infiniband/verbs.h> answers EOPNOTSUPP for it.

namespace softverbs {

namespace {

template <class Request>
int refused_post(entry::verb_name name, ibv_context* ctx, Request* wr, Request** bad_wr) noexcept {
  const int error = entry::refused(name, ctx);
  if (error != 0 && bad_wr != nullptr) *bad_wr = wr;
  return error;
}

int post_send(ibv_qp* qp, ibv_send_wr* wr, ibv_send_wr** bad_wr) {
  if (const int e = refused_post("ibv_post_send", qp->context, wr, bad_wr)) return e;
  return verb::post_send(qp, wr, bad_wr);
}

int post_recv(ibv_qp* qp, ibv_recv_wr* wr, ibv_recv_wr** bad_wr) {
  if (const int e = refused_post("ibv_post_recv", qp->context, wr, bad_wr)) return e;
  return verb::post_recv(qp, wr, bad_wr);
}

int post_srq_recv(ibv_srq* srq, ibv_recv_wr* wr, ibv_recv_wr** bad_wr) {
  if (const int e = refused_post("ibv_post_srq_recv", srq->context, wr, bad_wr)) return e;
  return verb::post_srq_recv(srq, wr, bad_wr);
}

int poll_cq(ibv_cq* cq, int cqes_max, ibv_wc* completions) {
  if (const int e = entry::refused("ibv_poll_cq", cq->context)) return or_minus_one(e);
  return verb::poll_cq(cq, cqes_max, completions);
}

int req_notify_cq(ibv_cq* cq, int solicited_only) {
  const int e = entry::refused("ibv_req_notify_cq", cq->context);
  return with_errno(e != 0 ? e : verb::req_notify_cq(cq, solicited_only));
}

ibv_mw* alloc_mw(ibv_pd* pd, ibv_mw_type type) {
  return serve("ibv_alloc_mw", pd->context, verb::alloc_mw, pd, type);
}

int dealloc_mw(ibv_mw* mw) {
  return serve_end("ibv_dealloc_mw", mw->context, verb::dealloc_mw, mw);
}

int bind_mw(ibv_qp* qp, ibv_mw* mw, ibv_mw_bind* bind) {
  return serve("ibv_bind_mw", qp->context, verb::bind_mw, qp, mw, bind);
}

int advise_mr(ibv_pd* pd, ibv_advise_mr_advice advice, std::uint32_t flags, ibv_sge* list,
              std::uint32_t count) {
  return serve("ibv_advise_mr", pd->context, verb::advise_mr, pd, advice, flags, list, count);
}

ibv_xrcd* open_xrcd(ibv_context* ctx, ibv_xrcd_init_attr* attr) {
  return serve("ibv_open_xrcd", ctx, verb::open_xrcd, ctx, attr);
}

int close_xrcd(ibv_xrcd* xrcd) {
  return serve_end("ibv_close_xrcd", xrcd->context, verb::close_xrcd, xrcd);
}

int modify_qp_rate_limit(ibv_qp* qp, ibv_qp_rate_limit_attr* attr) {
  return serve("ibv_modify_qp_rate_limit", qp->context, verb::modify_qp_rate_limit, qp, attr);
}

ibv_td* alloc_td(ibv_context* ctx, ibv_td_init_attr* attr) {
  return serve("ibv_alloc_td", ctx, verb::alloc_td, ctx, attr);
}

int dealloc_td(ibv_td* td) {
  return serve_end("ibv_dealloc_td", td->context, verb::dealloc_td, td);
}

ibv_pd* alloc_parent_domain(ibv_context* ctx, ibv_parent_domain_init_attr* attr) {
  return serve("ibv_alloc_parent_domain", ctx, verb::alloc_parent_domain, ctx, attr);
}

int start_poll(ibv_cq_ex* cq, ibv_poll_cq_attr* attr) {
  if (const int e = entry::refused("ibv_start_poll", cq->context)) return e;
  return verb::start_poll(cq, attr);
}

ibv_cq_ex* create_cq_ex(ibv_context* ctx, ibv_cq_init_attr_ex* attr) {
  ibv_cq_ex* const cq = serve("ibv_create_cq", ctx, verb::create_cq_ex, ctx, attr);
  if (cq != nullptr) cq->start_poll = start_poll;
  return cq;
}

ibv_srq* create_srq_ex(ibv_context* ctx, ibv_srq_init_attr_ex* attr) {
  return serve("ibv_create_srq", ctx, verb::create_srq_ex, ctx, attr);
}

int get_srq_num(ibv_srq* srq, std::uint32_t* number) {
  return serve("ibv_get_srq_num", srq->context, verb::get_srq_num, srq, number);
}

int wr_complete(ibv_qp_ex* qp) {
  const int error = entry::refused("ibv_wr_complete", qp->qp_base.context);
  if (error == 0) return verb::wr_complete(qp);
  qp->wr_abort(qp);
  return error;
}

ibv_qp* create_qp_ex(ibv_context* ctx, ibv_qp_init_attr_ex* attr) {
  ibv_qp* const qp = serve("ibv_create_qp", ctx, verb::create_qp_ex, ctx, attr);
  ibv_qp_ex* const extended = qp != nullptr ? verb::qp_to_qp_ex(qp) : nullptr;
  if (extended != nullptr) extended->wr_complete = wr_complete;
  return qp;
}

verbs_context make_table() noexcept {
  verbs_context table{};
  table.query_port = query_port;
  table.query_device_ex = query_device_ex;
  table.query_rt_values = query_rt_values;
  table.advise_mr = advise_mr;
  table.open_xrcd = open_xrcd;
  table.close_xrcd = close_xrcd;
  table.modify_qp_rate_limit = modify_qp_rate_limit;
  table.alloc_td = alloc_td;
  table.dealloc_td = dealloc_td;
  table.alloc_parent_domain = alloc_parent_domain;
  table.create_cq_ex = create_cq_ex;
  table.create_srq_ex = create_srq_ex;
  table.get_srq_num = get_srq_num;
  table.create_qp_ex = create_qp_ex;

  ibv_context_ops& ops = table.context.ops;
  ops._compat_query_device = ::ibv_query_device;  // Called by programs built before rdma-core 17.
  ops._compat_query_port = ::ibv_query_port;
  ops.alloc_mw = alloc_mw;
  ops.bind_mw = bind_mw;
  ops.dealloc_mw = dealloc_mw;
  ops.poll_cq = poll_cq;
  ops.req_notify_cq = req_notify_cq;
  ops.post_srq_recv = post_srq_recv;
  ops.post_send = post_send;
  ops.post_recv = post_recv;
  return table;
}

const verbs_context table = make_table();

}  // namespace

const verbs_context& context_table() noexcept { return table; }

}  // namespace softverbs
