#include <cordma/coro/semaphore.hpp>

namespace cordma {

semaphore::~semaphore() { CORDMA_ASSERT(waiting_.empty(), "semaphore destroyed while awaited"); }

void semaphore::grant(intrusive_list<acquire_op>& ended) noexcept {
  while (!waiting_.empty() && waiting_.front().count_ <= permits_) {
    acquire_op& next = waiting_.pop_front();
    permits_ -= next.count_;
    next.state_ = acquire_op::state::granted;
    next.stop_callback::unlink();  // A stop from here on must not take the permit.
    ended.push_back(next);
  }
}

void semaphore::end_all(intrusive_list<acquire_op>& ended) noexcept {
  while (!ended.empty()) ended.pop_front().end();
}

void semaphore::serve_waiting() noexcept {
  intrusive_list<acquire_op> ended;
  grant(ended);
  end_all(ended);
}

void semaphore::close(const failure& reason) noexcept {
  closed_ = reason;
  intrusive_list<acquire_op> ended;
  while (!waiting_.empty()) {
    acquire_op& next = waiting_.pop_front();
    next.state_ = acquire_op::state::closed;
    ended.push_back(next);
  }
  end_all(ended);
}

result<void> semaphore::acquire_op::take_result() noexcept {
  if (state_ == state::stopped) return cancelled_result;
  if (state_ == state::closed) return *semaphore_->closed_;
  state_ = state::taken;
  return {};
}

void semaphore::acquire_op::on_stop(stop_callback& callback) noexcept {
  auto& self = static_cast<acquire_op&>(callback);
  self.list_hook<acquire_op>::unlink();
  self.state_ = state::stopped;
  intrusive_list<acquire_op> ended;
  ended.push_back(self);
  // The withdrawn operation may have been the one that asked for too many.
  self.semaphore_->grant(ended);
  end_all(ended);
}

}  // namespace cordma
