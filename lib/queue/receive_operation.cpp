#include <cordma/detail/queue/receive_operation.hpp>

#include "receive_queue.hpp"

#include <utility>

namespace cordma {

bool receive_operation::start(waiter& w, const environment& env, bool posts,
                              std::span<const local_mr_slice> buffer) noexcept {
  if (env.stop.stop_requested()) return stopped();
  bool wants_room = false;
  // What came before a failure can still be taken; nothing more will come.
  if (posts && !queue_->closed_) {
    wants_room = !queue_->has_room();
    if (!wants_room) {
      if (const receive_queue::reason why = queue_->try_post(buffer)) {
        fail(queue_->refusal(why, buffer.size()));
        return true;
      }
    }
  }
  if (!wants_room && queue_->has_message()) {
    // Nobody waits, or that message would be promised.
    std::construct_at(&place_, *this, buffer);
    return queue_->serve(*this);
  }
  if (queue_->closed_) {
    fail(*queue_->closed_);
    return true;
  }
  std::construct_at(&place_, *this, buffer);
  if (wants_room) {
    state_ = state::wants_room;
    queue_->want_room_.push_back(place_);
    queue_->set_at_once_max();
  } else {
    queue_->serve(*this);
  }
  place_.begin(w, {env.scheduler != nullptr ? env.scheduler : &queue_->driver_.home(), env.stop});
  return false;
}

void receive_operation::leave() noexcept {
  if (state_ == state::promised) {
    place_.list_hook<place>::unlink();
    ++queue_->free_count_;
    if (queue_->first_waiting_ != nullptr) queue_->promise_to_next();
  } else {
    queue_->leave(place_);
  }
  place_.forget();
}

bool receive_operation::stopped() noexcept {
  state_ = state::stopped;
  queue_->tally_.cancelled(request_kind::receive);
  return true;
}

void receive_operation::fail(const request_outcome& how) noexcept {
  std::construct_at(&failure_, request_failure{how, queue_->num_});
  state_ = state::failed;
}

void receive_operation::on_stop(stop_callback& self) noexcept {
  auto& p = static_cast<place&>(self);
  p.owner.queue_->leave(p);
  p.owner.stopped();
  p.end();
}

message receive_operation::take() {
  if (state_ != state::promised) return take_result().value();
  place_.list_hook<place>::unlink();
  state_ = state::taken;
  return queue_->take();
}

result<message> receive_operation::take_result() noexcept {
  if (state_ == state::promised) return take();
  if (state_ == state::failed) return failure_.to_failure();
  return cancelled_result;
}

scheduler* receive_operation::own_scheduler() const noexcept { return &queue_->driver_.home(); }

}  // namespace cordma
