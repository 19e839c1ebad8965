#pragma once

#include <infiniband/verbs.h>

namespace softverbs {

/// Calls `visit` with the object that an event is about: an `ibv_cq*`, `ibv_qp*`, `ibv_srq*` or
/// `ibv_wq*`. Events of the port and the device have nullptr.
template <class Visit>
auto visit_subject(const ibv_async_event& event, Visit&& visit) {
  switch (event.event_type) {
    case IBV_EVENT_CQ_ERR: return visit(event.element.cq);
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
    case IBV_EVENT_COMM_EST:
    case IBV_EVENT_SQ_DRAINED:
    case IBV_EVENT_PATH_MIG:
    case IBV_EVENT_PATH_MIG_ERR:
    case IBV_EVENT_QP_LAST_WQE_REACHED: return visit(event.element.qp);
    case IBV_EVENT_SRQ_ERR:
    case IBV_EVENT_SRQ_LIMIT_REACHED: return visit(event.element.srq);
    case IBV_EVENT_WQ_FATAL: return visit(event.element.wq);
    default: return visit(nullptr);
  }
}

}  // namespace softverbs
