#include <cordma/detail/transfer/receive_op.hpp>

#include <utility>

namespace cordma {

void receive_queue::promise_to_next() noexcept {
  place& next = *first_waiting_;
  first_waiting_ = takers_.after(next);
  promise(next.owner);
  next.end();
}

void receive_queue::leave(place& p) noexcept {
  if (&p == first_waiting_) first_waiting_ = takers_.after(p);
  p.list_hook<place>::unlink();
  set_at_once_max();
}

void receive_queue::give_room() noexcept {
  while (!want_room_.empty() && tail_ - head_ < depth_) {
    place& next = want_room_.pop_front();
    const reason why = try_post_any(next.buffer);
    if (why) next.owner.fail(refusal(why, next.buffer.size()));
    if (why || serve(next.owner)) next.end();
  }
  set_at_once_max();
}

bool receive_queue::taker::wait(waiter& w, std::span<const local_mr_slice> buffer,
                                const environment& env) noexcept {
  if (env.stop.stop_requested()) [[unlikely]]
    return stopped();
  if (queue_->closed_ && !queue_->has_message()) [[unlikely]] {
    fail(*queue_->closed_);
    return true;
  }
  std::construct_at(&place_, *this, buffer);
  if (state_ == state::wants_room) [[unlikely]] {
    queue_->want_room_.push_back(place_);
    queue_->set_at_once_max();
  } else {
    queue_->serve(*this);
  }
  place_.begin(w, {env.scheduler != nullptr ? env.scheduler : &queue_->driver_.home(), env.stop});
  return false;
}

void receive_queue::taker::leave() noexcept {
  if (state_ == state::promised) {
    place_.list_hook<place>::unlink();
    ++queue_->free_count_;
    if (queue_->first_waiting_ != nullptr) queue_->promise_to_next();
  } else {
    queue_->leave(place_);
  }
  place_.forget();
}

bool receive_queue::taker::stopped() noexcept {
  state_ = state::stopped;
  queue_->tally_.cancelled(request_kind::receive);
  return true;
}

void receive_queue::taker::fail(const request_outcome& how) noexcept {
  std::construct_at(&failure_, request_failure{how, queue_->num_});
  state_ = state::failed;
}

void receive_queue::taker::on_stop(stop_callback& self) noexcept {
  auto& p = static_cast<place&>(self);
  p.owner.queue_->leave(p);
  p.owner.stopped();
  p.end();
}

void receive_queue::taker::claim() {
  if (state_ != state::promised) return static_cast<void>(take_result().value());
  place_.list_hook<place>::unlink();
  state_ = state::granted;
}

result<message> receive_queue::taker::take_result() noexcept {
  switch (state_) {
    case state::promised:
    case state::granted: return take();
    case state::failed: return failure_.to_failure();
    default: return cancelled_result;
  }
}

scheduler* receive_queue::taker::own_scheduler() const noexcept { return &queue_->driver_.home(); }

}  // namespace cordma
