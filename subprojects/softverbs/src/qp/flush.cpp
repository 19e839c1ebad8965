#include "qp/data_path.hpp"

#include <utility>

namespace softverbs {
namespace {

void queue_event(ibv_context* ctx, const ibv_async_event& event) noexcept {
  try {
    soft(ctx).async.push(event);
  } catch (...) {
    // Without memory the event is lost; the state still shows the error.
  }
}

}  // namespace

void raise(queue_pair& qp, ibv_event_type type) noexcept {
  if (qp.handle.qp_base.context == nullptr) return;  // A proxy of XRC, which no program sees.
  ibv_async_event event{};
  event.element.qp = &qp.handle.qp_base;
  event.event_type = type;
  queue_event(qp.handle.qp_base.context, event);
}

void raise_due(queue_pair& qp) noexcept {
  if (const auto type = std::exchange(qp.responder.event_due, std::nullopt)) raise(qp, *type);
}

void raise_limit(shared_receive_queue& srq) noexcept {
  ibv_async_event event{};
  event.element.srq = &srq.handle;
  event.event_type = IBV_EVENT_SRQ_LIMIT_REACHED;
  queue_event(srq.handle.context, event);
}

void raise_queue_error(queue_pair& qp) noexcept {
  if (qp.state.load(std::memory_order_acquire) != IBV_QPS_ERR) raise(qp, IBV_EVENT_QP_FATAL);
  enter_error(qp);
}

void enter_error(queue_pair& qp) noexcept {
  // A proxy of XRC goes on: its target decides.
  if (qp.handle.qp_base.context == nullptr) return;
  if (qp.state.exchange(IBV_QPS_ERR, std::memory_order_acq_rel) == IBV_QPS_ERR) return;
  qp.flush_due.store(true, std::memory_order_release);
  qp.local_node->kick(qp.number());
}

void flush_sends(queue_pair& qp) noexcept {
  send_ring& ring = qp.sends;
  while (ring.completed != ring.posted) complete_oldest(qp, IBV_WC_WR_FLUSH_ERR);
  ring.next = ring.posted;
  qp.requester.reads_in_flight = 0;
  qp.requester.waits = false;
  qp.requester.unanswered = false;
}

void flush_receives(queue_pair& qp) noexcept {
  responder_state& state = qp.responder;
  const frame_header nothing{};
  if (state.has_request) flush_request(qp);
  for (; qp.srq() == nullptr && !qp.receives.empty(); qp.receives.pop()) {
    state.request.wr_id = qp.receives.front().wr_id;
    complete_receive(qp, nothing, IBV_WC_WR_FLUSH_ERR);
  }
  qp.slot->expected.in_message = false;
}

void flush(queue_pair& qp) noexcept {
  flush_sends(qp);
  flush_receives(qp);
  // The QP takes no more requests from the SRQ: the event tells the program so.
  if (qp.flush_due.exchange(false, std::memory_order_acq_rel) && qp.srq() != nullptr)
    raise(qp, IBV_EVENT_QP_LAST_WQE_REACHED);
}

}  // namespace softverbs
