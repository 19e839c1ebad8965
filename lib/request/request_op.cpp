#include <cordma/detail/request/request_op.hpp>

#include "queue/send_queue.hpp"

#include <cordma/detail/base/probe.hpp>

namespace cordma {

awaited_send::awaited_send(awaited_send&& other, std::uint64_t* values_before) noexcept
    : send_operation{static_cast<send_operation&&>(other), values_before},
      was_stopped_{other.was_stopped_} {
  CORDMA_ASSERT(!other.is_awaited_ || other.wait_.awaiter.empty(),
                "an operation is not moved while it is awaited");
  other.forget_waiter();  // Forgets the waiter of an abandoned wait.
}

bool awaited_send::start(waiter& w, const environment& env) noexcept {
  CORDMA_ASSERT(!was_moved(), "the operation was moved away");
  CORDMA_ASSERT(!is_awaited_ || wait_.awaiter.empty(), "a handle is awaited by one at a time");
  forget_waiter();  // Forgets the waiter of an abandoned wait.
  was_stopped_ = false;
  if (has_ended()) return true;
  if (env.stop.stop_requested()) return stopped();
  is_idle() ? post_awaited() : await_posted();
  if (has_ended()) return true;
  is_awaited_ = true;
  std::construct_at(&wait_, *this);
  wait_.awaiter.set(w);
  wait_.resumes_on = env.scheduler != nullptr ? env.scheduler : &queue().scheduler();
  env.stop.register_callback(wait_);
  return false;
}

bool awaited_send::stopped() noexcept {
  was_stopped_ = true;
  count_cancelled();
  recall();
  return true;
}

void awaited_send::on_stop(stop_callback& self) noexcept {
  awaited_send& o = static_cast<wait_state&>(self).owner;
  o.ring_now();  // Data that went inline may change once the wait has ended.
  if (o.has_ended()) return;
  o.stopped();
  o.on_end();
}

void awaited_send::on_end() noexcept {
  if (!is_awaited_) return;
  waiter* const told = wait_.awaiter.take();
  scheduler* const resumes_on = wait_.resumes_on;
  forget_waiter();
  if (told == nullptr) return;
  CORDMA_PROBE3(wake, queue().num(), sequence(), told);
  resumes_on->schedule(*told);
}

void awaited_send::throw_outcome() const {
  if (was_stopped_) detail::throw_cancelled();
  detail::throw_error(to_failure());
}

scheduler* awaited_send::own_scheduler() const noexcept {
  return has_ended() ? nullptr : &queue().scheduler();
}

}  // namespace cordma
