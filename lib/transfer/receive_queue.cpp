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
      slices_max_{std::clamp<std::uint32_t>(qp.capabilities().recv_sge_max, 1, receive_slices_max)},
      slots_(mask_ + 1),
      more_slices_(slots_.size() * (slices_max_ - 1)) {}

receive_queue::~receive_queue() {
  CORDMA_ASSERT(posted() == 0, "receive queue destroyed before its queue pair");
  CORDMA_ASSERT(want_room_.empty() && want_message_.empty(), "receive queue destroyed unended");
  while (!promised_.empty()) promised_.pop_front().fail({.code = errc::closed, .call = "close"});
  while (head_ != completed_) let_go_of(head_++);
}

request_outcome receive_queue::refusal(std::error_code why, std::size_t slices) noexcept {
  tally_.refused(request_kind::receive);
  request_outcome how{.code = why, .call = "post_recv"};
  if (why == errc::too_many_slices) {
    how.value = slices;
    how.limit = slices_max_;
  } else if (why.category() == std::system_category()) {
    how.call = "ibv_post_recv";
  }
  return how;
}

std::error_code receive_queue::try_post_any(std::span<const local_mr_slice> buffer) noexcept {
  return try_post(buffer);
}

void receive_queue::post(std::span<const local_mr_slice> buffer) {
  if (!closed_ && has_room()) [[likely]] {
    const std::error_code why =
        buffer.size() == 1 ? try_post(buffer.first<1>()) : try_post_any(buffer);
    if (!why) [[likely]]
      return;
    throw error{refusal(why, buffer.size()).to_failure(num_)};
  }
  failure f = refusal(closed_ ? errc::disconnected : errc::receive_queue_full, buffer.size())
                  .to_failure(num_);
  if (!closed_) {
    char text[100];
    std::snprintf(text, sizeof text,
                  "%u buffers are posted or hold messages nobody took; take those first", depth_);
    f.detail = text;
  }
  throw error{f};
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
    if (const std::error_code why = try_post_any(next.buffer_))
      next.fail(refusal(why, next.buffer_.size()));
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
  std::vector<local_mr_slice>{}.swap(more_slices_);
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

void receive_queue::taker::leave() noexcept {
  if (state_ == state::promised) {
    queue_->take_back(*this);
  } else {
    list_hook<taker>::unlink();
  }
  forget();
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
