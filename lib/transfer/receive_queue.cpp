#include <cordma/transfer/receive_queue.hpp>

#include <bit>
#include <cstdio>

namespace cordma {

receive_queue::receive_queue(scheduler& home, verbs::protection_domain& pd, verbs::queue_pair& qp,
                             transfer_tally& tally)
    : home_{home},
      qp_{qp},
      num_{qp.num()},
      pd_{pd.native_handle()},
      tally_{tally},
      depth_{qp.capabilities().recv_wr_max},
      mask_{std::bit_ceil(depth_) - 1},
      slices_max_{std::min<std::uint32_t>(qp.capabilities().recv_sge_max, receive_slices_max)},
      slots_(mask_ + 1),
      slices_(slots_.size() * slices_max_) {}

receive_queue::~receive_queue() {
  CORDMA_ASSERT(posted() == 0, "receive queue destroyed before its queue pair");
  CORDMA_ASSERT(want_room_.empty() && want_message_.empty(), "receive queue destroyed unended");
  while (!promised_.empty()) promised_.pop_front().fail({.code = errc::closed, .call = "close"});
  while (head_ != completed_) let_go_of(head_++);
}

void receive_queue::refuse(std::optional<request_outcome>& why, errc code, std::uint64_t value,
                           std::uint64_t limit) noexcept {
  tally_.refused(request_kind::receive);
  why = {.code = code, .call = "post_recv", .value = value, .limit = limit};
}

void receive_queue::post(std::span<const local_mr_slice> buffer) {
  std::optional<request_outcome> why;
  if (closed_) {
    refuse(why, errc::disconnected);
  } else if (!has_room()) {
    refuse(why, errc::receive_queue_full);
    failure full = why->to_failure(num_);
    char text[100];
    std::snprintf(text, sizeof text,
                  "%u buffers are posted or hold messages nobody took; take those first", depth_);
    full.detail = text;
    throw error{full};
  } else if (try_post(buffer, why)) {
    return;
  }
  throw error{why->to_failure(num_)};
}

void receive_queue::take_back(taker& t) noexcept {
  t.list_hook<taker>::unlink();
  --promised_count_;
  if (want_message_.empty()) return;
  taker& next = want_message_.pop_front();
  promise(next);
  next.end();
}

void receive_queue::give_room() noexcept {
  while (!want_room_.empty() && tail_ - head_ < depth_) {
    taker& next = want_room_.pop_front();
    if (!try_post(next.buffer_, next.outcome_)) next.state_ = taker::state::failed;
    if (next.state_ == taker::state::failed || serve(next)) next.end();
  }
}

void receive_queue::end_all(const request_outcome& how) noexcept {
  if (closed_) return;
  closed_ = how;
  for (intrusive_list<taker>* waiting : {&want_room_, &want_message_}) {
    while (!waiting->empty()) {
      taker& next = waiting->pop_front();
      next.fail(how);
      next.end();
    }
  }
}

void receive_queue::refuse_all(const request_outcome& how) noexcept {
  end_all(how);
  if (tail_ != sequence_first) return;
  std::vector<slot>{}.swap(slots_);
  std::vector<local_mr_slice>{}.swap(slices_);
}

void receive_queue::release_slots() noexcept {
  for (; posted() > 0; ++flushed_) {
    tally_.failed(request_kind::receive);
    let_go_of(completed_ + flushed_);
  }
}

void receive_queue::taker::wait_for_room(std::span<const local_mr_slice> buffer, waiter& w,
                                         const environment& env) noexcept {
  buffer_ = buffer;
  queue_->want_room_.push_back(*this);
  wait(w, env);
}

bool receive_queue::taker::stopped() noexcept {
  state_ = state::stopped;
  queue_->tally_.cancelled(request_kind::receive);
  return true;
}

void receive_queue::taker::on_stop(stop_callback& self) noexcept {
  auto& t = static_cast<taker&>(self);
  t.list_hook<taker>::unlink();
  t.stopped();
  t.end();
}

result<message> receive_queue::taker::take_result() noexcept {
  switch (state_) {
    case state::promised: return queue_->take(*this);
    case state::failed: return outcome_->to_failure(qp_num_);
    default: return cancelled_result;
  }
}

}  // namespace cordma
