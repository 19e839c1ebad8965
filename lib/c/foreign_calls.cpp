#include "foreign_calls.hpp"

#include "base/fork.hpp"

namespace cordma::c {

foreign_calls::foreign_calls() noexcept : process_{detail::process_epoch()} {}

void foreign_calls::open(executor& of) {
  of.add(*this);
  const std::lock_guard lock{mutex_};
  executor_ = &of;
}

void foreign_calls::close() noexcept {
  {
    const std::lock_guard lock{mutex_};
    executor_ = nullptr;
  }
  poll();
  list_hook<poller>::unlink();
}

std::size_t foreign_calls::poll() noexcept {
  if (first_.load(std::memory_order_relaxed) == nullptr) return 0;
  call* next = nullptr;
  {
    const std::lock_guard lock{mutex_};
    next = first_.exchange(nullptr, std::memory_order_relaxed);
    is_asleep_ = false;
  }
  std::size_t count = 0;
  for (; next != nullptr; ++count) {
    call& one = *next;
    next = one.next_;  // The call may be gone once it has run.
    one.run();
  }
  return count;
}

bool foreign_calls::prepare_wait() noexcept {
  const std::lock_guard lock{mutex_};
  is_asleep_ = first_.load(std::memory_order_relaxed) == nullptr;
  return is_asleep_;
}

bool foreign_calls::submit(call& one) {
  if (process_ != detail::process_epoch()) return false;
  const std::lock_guard lock{mutex_};
  if (executor_ == nullptr) return false;
  if (first_.load(std::memory_order_relaxed) == nullptr) {
    first_.store(&one, std::memory_order_relaxed);
  } else {
    last_->next_ = &one;
  }
  last_ = &one;
  // Under the mutex, so that the executor is still there.
  if (is_asleep_) executor_->reactor().wake();
  is_asleep_ = false;
  return true;
}

}  // namespace cordma::c
