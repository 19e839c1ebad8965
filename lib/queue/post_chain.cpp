#include "post_chain.hpp"

#include <utility>

namespace cordma::detail {
namespace {

bool has_own_call(const ibv_send_wr& wr) noexcept {
  return wr.opcode == IBV_WR_ATOMIC_WRITE ||
         (wr.opcode == IBV_WR_BIND_MW && wr.bind_mw.mw->type == IBV_MW_TYPE_1);
}

int post_bind(ibv_qp* qp, const ibv_send_wr& wr) noexcept {
  ibv_mw_bind bind{
      .wr_id = wr.wr_id, .send_flags = wr.send_flags, .bind_info = wr.bind_mw.bind_info};
  return ibv_bind_mw(qp, wr.bind_mw.mw, &bind);
}

int post_atomic_write(ibv_qp* qp, const ibv_send_wr& wr) noexcept {
  ibv_qp_ex* const extended = ibv_qp_to_qp_ex(qp);
  ibv_wr_start(extended);
  extended->wr_id = wr.wr_id;
  extended->wr_flags = wr.send_flags;
  auto* const word = reinterpret_cast<const void*>(wr.sg_list->addr);  // NOLINT: the word's slot.
  ibv_wr_atomic_write(extended, wr.wr.rdma.rkey, wr.wr.rdma.remote_addr, word);
  return ibv_wr_complete(extended);
}

/// Posts the requests from `first` to `last`, which stay in the chain.
int post_row(ibv_qp* qp, ibv_send_wr* first, ibv_send_wr& last, ibv_send_wr** bad) noexcept {
  ibv_send_wr* const next = std::exchange(last.next, nullptr);
  const int rc = ibv_post_send(qp, first, bad);
  last.next = next;
  return rc;
}

}  // namespace

const char* posting_call(const ibv_send_wr* wr) noexcept {
  if (wr == nullptr || !has_own_call(*wr)) return "ibv_post_send";
  return wr->opcode == IBV_WR_BIND_MW ? "ibv_bind_mw" : "ibv_wr_complete";
}

int post_chain(ibv_qp* qp, ibv_send_wr* first, ibv_send_wr** bad) noexcept {
  while (first != nullptr) {
    ibv_send_wr* last = first;
    int rc = 0;
    if (has_own_call(*first)) {
      rc = first->opcode == IBV_WR_BIND_MW ? post_bind(qp, *first) : post_atomic_write(qp, *first);
      if (rc != 0) *bad = first;
    } else {
      while (last->next != nullptr && !has_own_call(*last->next)) last = last->next;
      rc = post_row(qp, first, *last, bad);
    }
    if (rc != 0) return rc;
    first = last->next;
  }
  return 0;
}

}  // namespace cordma::detail
