#include <cordma/detail/transfer/prepared_op.hpp>

#include <algorithm>

namespace cordma {

void prepared_submission::prepare() {
  if (const auto why = queue_->admit(*this)) {
    queue_->count_refused(*this, 0);
    throw error{why->to_failure(queue_->num_)};
  }
  queue_->seldom_->prepared.push_back(*this);
  holds_memory_ = true;
  has_leases_ = std::ranges::any_of(requests_, [](const request_shape& request) {
    return request.remote != nullptr && request.remote->lease() != nullptr;
  });
}

std::optional<request_outcome> prepared_submission::hold() noexcept {
  if (!list_hook<prepared_submission>::is_linked()) return queue_->hold(requests_);
  for (const request_shape& request : requests_) queue_->hold_again(request);
  return std::nullopt;
}

prepared_submission::~prepared_submission() {
  forget_waiter();
  if (queue_ == nullptr || !list_hook<prepared_submission>::is_linked()) return;
  if (state_ == state::in_flight) detach();
  if (state_ == state::queued) queue_->withdraw(*this);
  list_hook<prepared_submission>::unlink();
  leave_queue();
}

void prepared_submission::leave_queue() noexcept {
  queue_->keep_memory(*this, requests_);
  if (state_ == state::idle) state_ = state::gone;
  trouble_ |= gone_bit;
  std::exchange(queue_, nullptr)->let_go(requests_);
}

bool prepared_submission::is_refused_by_lease() const noexcept {
  return std::ranges::any_of(requests_, [this](const request_shape& request) {
    return queue_->lease_refusal(request) != errc{};
  });
}

failure prepared_submission::take_failure() noexcept {
  failure why = failure_.to_failure();
  trouble_ &= gone_bit;
  begin_anew();
  return why;
}

}  // namespace cordma
