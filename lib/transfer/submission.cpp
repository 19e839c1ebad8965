#include <cordma/transfer/submission.hpp>

#include <cordma/transfer/send_queue.hpp>

#include <cinttypes>
#include <cstdio>

namespace cordma {

failure request_outcome::to_failure(std::uint32_t qp_num) const noexcept {
  failure f{.code = code, .call = call, .object = {"qp", qp_num}, .vendor = vendor, .index = index};
  if (value != 0 || limit != 0) {
    char text[96];
    std::snprintf(text, sizeof text, "%" PRIu64 ", where %" PRIu64 " is the most", value, limit);
    f.detail = text;
  }
  return f;
}

submission::submission(send_queue& queue, std::uint32_t count) noexcept
    : stop_callback{&on_stop}, queue_{&queue}, qp_num_{queue.qp_.num()}, count_{count} {}

submission::submission(submission&& other) noexcept
    : list_hook<submission>{static_cast<list_hook<submission>&&>(other)},
      stop_callback{&on_stop},
      queue_{other.queue_},
      qp_num_{other.qp_num_},
      first_{other.first_},
      count_{other.count_},
      pending_{other.pending_},
      state_{std::exchange(other.state_, state::idle)},
      is_handle_{other.is_handle_},
      was_stopped_{other.was_stopped_},
      is_urgent_{other.is_urgent_},
      tells_at_once_{other.tells_at_once_},
      outcome_{other.outcome_} {
  CORDMA_ASSERT(!other.is_waiting(), "an operation is not moved while it is awaited");
  if (state_ == state::in_flight) queue_->adopt(*this, this);
}

submission::~submission() {
  if (state_ == state::in_flight) queue_->adopt(*this, nullptr);
}

void submission::submit() noexcept { queue_->enqueue(*this); }

bool submission::wait(waiter& w, const environment& env) noexcept {
  if (state_ == state::in_flight && !queue_->will_complete(first_ + count_ - 1)) {
    queue_->adopt(*this, nullptr);
    end({.code = errc::not_signaled, .call = "await"});
    return true;
  }
  CORDMA_ASSERT(!is_waiting(), "a handle is awaited by one at a time");
  waiter_.push_back(w);
  scheduler_ = env.scheduler != nullptr ? env.scheduler : &queue_->home_;
  stop_callback::unlink();  // From the token of a wait that was abandoned.
  env.stop.register_callback(*this);
  return false;
}

void submission::forget_waiter() noexcept {
  stop_callback::unlink();
  if (is_waiting()) waiter_.front().unlink();
}

void submission::on_stop(stop_callback& self) noexcept {
  auto& s = static_cast<submission&>(self);
  s.was_stopped_ = true;
  if (s.state_ == state::queued && !s.is_handle_) {
    // Nobody else wants it, and the device has not seen it.
    s.list_hook<submission>::unlink();
    s.let_go();
    s.state_ = state::ended;
    s.queue_->pump();  // It may have been the one that asked for too much room.
  }
  s.wake();
}

void submission::slot_ended(std::uint32_t index, const request_outcome& how) noexcept {
  if (how.code && !outcome_.code) {
    outcome_ = how;
    outcome_.index = index;
  }
  if (--pending_ == 0) finish();
}

void submission::end(const request_outcome& how) noexcept {
  if (!outcome_.code) outcome_ = how;
  finish();
}

void submission::finish() noexcept {
  state_ = state::ended;
  wake();
}

void submission::wake() noexcept {
  stop_callback::unlink();
  if (!is_waiting()) return;
  waiter& told = waiter_.pop_front();
  if (tells_at_once_)
    told.done().resume();
  else
    scheduler_->schedule(told);
}

}  // namespace cordma
