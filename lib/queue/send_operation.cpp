#include <cordma/detail/queue/send_operation.hpp>

#include "send_queue.hpp"

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

send_operation::send_operation(send_operation&& other, std::uint64_t* values_before) noexcept
    : list_hook<send_operation>{static_cast<list_hook<send_operation>&&>(other)},
      queue_{other.queue_},
      values_before_{values_before},
      first_{other.first_},
      pending_{other.pending_},
      count_{std::exchange(other.count_, std::uint16_t{0})},
      state_{std::exchange(other.state_, state::ended)},
      error_bits_{other.error_bits_},
      is_handle_{other.is_handle_},
      is_urgent_{other.is_urgent_},
      is_signaled_{other.is_signaled_},
      notifies_inline_{other.notifies_inline_} {
  CORDMA_ASSERT(!other.is_awaited_ || other.wait_.who.empty(),
                "an operation is not moved while it is awaited");
  other.forget_waiter();  // Of a wait that was abandoned.
  if (has_failure()) std::construct_at(&failure_, other.failure_);
  if (state_ == state::in_flight) queue_->adopt(*this, this);
}

send_operation::~send_operation() {
  detail::assume(!list_hook<send_operation>::is_linked());
  forget_waiter();
}

bool send_operation::start(waiter& w, const environment& env) noexcept {
  if (state_ != state::idle) return start_posted(w, env);
  forget_stop();
  if (env.stop.stop_requested()) return stopped();
  is_signaled_ = true;
  list_requests(&send_queue::post);
  return has_ended() || wait(w, env);
}

bool send_operation::start_posted(waiter& w, const environment& env) noexcept {
  CORDMA_ASSERT(count_ != 0, "the operation was moved away");
  CORDMA_ASSERT(!is_awaited_ || wait_.who.empty(), "a handle is awaited by one at a time");
  forget_waiter();  // Of a wait that was abandoned.
  forget_stop();
  if (has_ended()) return true;
  if (env.stop.stop_requested()) return stopped();
  is_signaled_ = true;  // If it is still queued.
  if (state_ == state::in_flight && !queue_->will_complete(first_ + count_ - 1)) {
    cannot_end();
    return true;
  }
  return wait(w, env);
}

bool send_operation::wait(waiter& w, const environment& env) noexcept {
  is_awaited_ = true;
  std::construct_at(&wait_, *this);
  wait_.who.set(w);
  wait_.resumes_on = env.scheduler != nullptr ? env.scheduler : &queue_->home();
  env.stop.register_callback(wait_);
  return false;
}

void send_operation::post() noexcept {
  is_handle_ = true;
  list_requests(&send_queue::post);
}

void send_operation::leave() noexcept {
  forget_waiter();
  if (state_ == state::in_flight) return detach();
  queue_->withdraw(*this);
  state_ = state::ended;
}

void send_operation::detach() noexcept {
  queue_->ring_now();  // As it would have: what went inline may change now.
  queue_->pump();      // A doorbell that fails leaves room.
  if (state_ == state::in_flight) queue_->adopt(*this, nullptr);  // Its doorbell was taken.
  state_ = state::ended;
}

void send_operation::cannot_end() noexcept {
  queue_->adopt(*this, nullptr);
  end({.code = errc::not_signaled, .call = "await"});
}

void send_operation::forget_waiter() noexcept {
  if (std::exchange(is_awaited_, false)) std::destroy_at(&wait_);
}

void send_operation::count_cancelled() noexcept {
  list_requests([](send_operation& o, const wr_list& list) noexcept {
    for (const wr_summary& request : list.requests) o.queue_->tally().cancelled(request.kind);
  });
}

bool send_operation::stopped() noexcept {
  error_bits_ |= stop_bit;
  count_cancelled();
  if (state_ == state::queued && !is_handle_) {
    // Nobody else wants it, and the device has not seen it.
    state_ = state::idle;  // It can be awaited anew.
    queue_->withdraw(*this);
  }
  return true;
}

void send_operation::on_stop(stop_callback& self) noexcept {
  send_operation& o = static_cast<wait_state&>(self).owner;
  o.queue_->ring_now();  // As in `detach`.
  o.queue_->pump();
  if (o.has_ended()) return;
  o.stopped();
  o.wake();
}

void send_operation::wake() noexcept {
  if (!is_awaited_) return;
  waiter* const told = wait_.who.take();
  scheduler* const resumes_on = wait_.resumes_on;
  forget_waiter();
  if (told == nullptr) return;
  CORDMA_PROBE3(wake, queue_->num(), first_, told);
  if (notifies_inline_) {
    queue_->home().forbid_inline_polls();  // Perhaps amid one.
    told->done().resume();
  } else {
    resumes_on->schedule(*told);
  }
}

void send_operation::finish() noexcept {
  state_ = state::ended;
  wake();
}

void send_operation::slot_failed(request_outcome failure, std::uint32_t index) noexcept {
  failure.index = index;
  note(failure);
  slot_ended();
}

void send_operation::note(const request_outcome& failure) noexcept {
  if (has_failure()) return;
  std::construct_at(&failure_, request_failure{failure, queue_->num()});
  error_bits_ |= failure_bit;
}

void send_operation::end(const request_outcome& failure) noexcept {
  note(failure);
  finish();
}

/// Once it has ended its queue may be gone.
scheduler* send_operation::own_scheduler() const noexcept {
  return state_ == state::ended ? nullptr : &queue_->home();
}

}  // namespace cordma
