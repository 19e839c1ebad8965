#include <cordma/detail/transfer/submission.hpp>

#include <cordma/detail/transfer/send_queue.hpp>

#include <cinttypes>
#include <cstdio>
#include <memory>
#include <utility>

namespace cordma {

namespace {

const char* way_out_of(std::error_code code) noexcept {
  if (code == wc_errc::rnr_retry_exceeded) {
    return "the peer had posted no receive in time: post receives before they are needed, or be "
           "more "
           "patient (the sender's rnr_retry, the receiver's min_rnr_timer)";
  }
  if (code == wc_errc::local_length) {
    return "the message was longer than the receive that it met: post longer ones, or send by "
           "message_stream, which takes any length";
  }
  if (code == wc_errc::remote_invalid_request) {
    return "the peer's device takes no such request; most often a message is longer than the "
           "receive that it meets: agree on a length, or send by message_stream";
  }
  if (code == wc_errc::retry_exceeded) {
    return "the peer's device does not answer: is its host up, and does the device's own network, "
           "not the bootstrap's, lead there? docs/devices.md says what soft0 needs";
  }
  return "";
}

}  // namespace

failure request_outcome::to_failure(std::uint32_t qp_num) const noexcept {
  failure f{.code = code, .call = call, .object = {"qp", qp_num}, .vendor = vendor, .index = index};
  if (value != 0 || limit != 0) {
    char text[96];
    std::snprintf(text, sizeof text, "%" PRIu64 ", where %" PRIu64 " is the most", value, limit);
    f.detail = text;
  } else {
    f.detail = way_out_of(code);
  }
  return f;
}

submission::submission(submission&& other) noexcept
    : list_hook<submission>{static_cast<list_hook<submission>&&>(other)},
      queue_{other.queue_},
      first_{other.first_},
      pending_{other.pending_},
      count_{std::exchange(other.count_, std::uint16_t{0})},
      state_{std::exchange(other.state_, state::ended)},
      trouble_{other.trouble_},
      is_handle_{other.is_handle_},
      is_urgent_{other.is_urgent_},
      tells_at_once_{other.tells_at_once_} {
  CORDMA_ASSERT(!other.is_awaited_ || other.wait_.who.empty(),
                "an operation is not moved while it is awaited");
  other.forget_waiter();  // Of a wait that was abandoned.
  if (state_ == state::in_flight) queue_->adopt(*this, this);
}

bool submission::start_posted(waiter& w, const environment& env) noexcept {
  CORDMA_ASSERT(count_ != 0, "the operation was moved away");
  CORDMA_ASSERT(!is_awaited_ || wait_.who.empty(), "a handle is awaited by one at a time");
  forget_waiter();  // Of a wait that was abandoned.
  forget_stop();
  if (has_ended()) return true;
  if (env.stop.stop_requested()) return stopped();
  if (state_ == state::queued) ask_for_entry();
  if (state_ == state::in_flight && !queue_->will_complete(first_ + count_ - 1)) {
    cannot_end();
    return true;
  }
  return wait(w, env);
}

bool submission::wait(waiter& w, const environment& env) noexcept {
  is_awaited_ = true;
  std::construct_at(&wait_, *this);
  wait_.who.set(w);
  wait_.home = env.scheduler != nullptr ? env.scheduler : &queue_->doorbells().home();
  env.stop.register_callback(wait_);
  return false;
}

void submission::submit() noexcept { queue_->enqueue(*this); }

void submission::detach() noexcept {
  queue_->ring_now();  // As it would have: what went inline may change now.
  queue_->pump();      // A doorbell that fails leaves room.
  if (state_ == state::in_flight) queue_->adopt(*this, nullptr);  // Its doorbell was taken.
}

/// It is in flight, and the device will not tell its end.
void submission::cannot_end() noexcept {
  queue_->adopt(*this, nullptr);
  end({.code = errc::not_signaled, .call = "await"});
}

void submission::forget_waiter() noexcept {
  if (std::exchange(is_awaited_, false)) std::destroy_at(&wait_);
}

bool submission::stopped() noexcept {
  trouble_ |= stop_bit;
  for (std::uint32_t i = 0; i < count_; ++i) queue_->tally().cancelled(kind_of(i));
  if (state_ == state::queued && !is_handle_) {
    // Nobody else wants it, and the device has not seen it.
    state_ = state::idle;  // It can be awaited anew.
    queue_->withdraw(*this);
  }
  return true;
}

void submission::on_stop(stop_callback& self) noexcept {
  submission& s = static_cast<wait_place&>(self).owner;
  s.queue_->ring_now();  // As in `detach`.
  s.queue_->pump();
  if (s.has_ended()) return;
  s.stopped();
  s.wake();
}

void submission::slot_failed(request_outcome failure, std::uint32_t index) noexcept {
  failure.index = index;
  note(failure);
  slots_ended(1);
}

void submission::note(const request_outcome& failure) noexcept {
  if (has_failure()) return;
  std::construct_at(place_of_failure(), request_failure{failure, queue_->num_});
  trouble_ |= failure_bit;
}

void submission::end(const request_outcome& failure) noexcept {
  note(failure);
  finish();
}

/// Once it has ended its queue may be gone.
scheduler* submission::own_scheduler() const noexcept {
  return state_ == state::ended ? nullptr : &queue_->doorbells().home();
}

}  // namespace cordma
