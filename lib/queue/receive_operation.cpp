#include <cordma/detail/queue/receive_operation.hpp>

#include "receive_queue.hpp"

#include <memory>

namespace cordma {

bool receive_operation::begin(bool posts, std::span<const local_mr_slice> buffer) noexcept {
  buffer_ = buffer;
  // Messages from before a failure can still be taken; no more will come.
  if (posts && !queue_->closed_.has_failed()) {
    if (!queue_->has_room()) {
      state_ = state::wants_room;
      queue_->want_room_.push_back(*this);
      queue_->set_at_once_max();
      return false;
    }
    return queue_->post_and_serve(*this);
  }
  return queue_->serve(*this);
}

void receive_operation::leave() noexcept {
  if (state_ == state::promised) {
    unlink();
    ++queue_->free_count_;
    if (queue_->first_waiting_ != nullptr) queue_->promise_to_next();
  } else {
    queue_->leave(*this);
  }
}

void receive_operation::stop() noexcept {
  if (state_ >= state::wants_room) leave();
  state_ = state::stopped;
  queue_->tally_.cancelled(request_kind::receive);
}

void receive_operation::fail(const request_outcome& how) noexcept {
  std::construct_at(&failure_, request_failure{how, queue_->num_});
  state_ = state::failed;
}

void receive_operation::take(message& into) {
  if (state_ != state::promised) [[unlikely]] {
    into = take_result().value();
    return;
  }
  unlink();
  state_ = state::taken;
  queue_->take(into);
}

message receive_operation::take() {
  message taken;
  take(taken);
  return taken;
}

result<message> receive_operation::take_result() noexcept {
  if (state_ == state::promised) return take();
  if (state_ == state::failed) return failure_.to_failure();
  return cancelled_result;
}

}  // namespace cordma
