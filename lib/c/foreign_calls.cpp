#include "foreign_calls.hpp"

#include "base/fork.hpp"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <ctime>

namespace cordma::c {
namespace {

/// Calls of one poll: others than foreign threads want the context's, too.
constexpr std::size_t at_once_max = 64;
/// A call mostly ends before its caller would sleep.
constexpr int tries_before_sleep = 4;

}  // namespace

void foreign_calls::call::end() noexcept {
  // The waiter may destroy the call as soon as it sees the value; waking nobody does no harm.
  std::atomic<std::uint32_t>* const at = &ended_;
  if (at->exchange(ended, std::memory_order_acq_rel) == awaited)
    ::syscall(SYS_futex, at, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
}

bool foreign_calls::call::wait_until(time_point deadline) noexcept {
  const auto has_ended = [&] { return ended_.load(std::memory_order_acquire) == ended; };
  for (int n = 0; n < tries_before_sleep; ++n) {
    if (has_ended()) return true;
    std::this_thread::yield();
  }
  std::uint32_t before = running;
  ended_.compare_exchange_strong(before, awaited, std::memory_order_acq_rel);
  const bool is_bounded = deadline != time_point::max();
  const auto since_start = deadline.time_since_epoch();
  const auto seconds = std::chrono::floor<std::chrono::seconds>(since_start);
  const timespec until{.tv_sec = seconds.count(), .tv_nsec = (since_start - seconds).count()};
  while (!has_ended()) {
    if (is_bounded && std::chrono::steady_clock::now() >= deadline) return false;
    // CLOCK_MONOTONIC, an absolute time.
    ::syscall(SYS_futex, &ended_, FUTEX_WAIT_BITSET_PRIVATE, awaited, is_bounded ? &until : nullptr,
              nullptr, FUTEX_BITSET_MATCH_ANY);
  }
  return true;
}

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
  while (poll() > 0) {
  }
  list_hook<poller>::unlink();
}

std::size_t foreign_calls::poll() noexcept {
  std::size_t count = 0;
  while (count < at_once_max && first_.load(std::memory_order_relaxed) != nullptr) {
    call* next = nullptr;
    {
      const std::lock_guard lock{mutex_};
      next = first_.load(std::memory_order_relaxed);
      if (next == nullptr) break;
      first_.store(next->next_, std::memory_order_relaxed);
      is_asleep_ = false;
    }
    next->run();  // The call may be gone afterwards.
    ++count;
  }
  return count;
}

bool foreign_calls::take_back(call& one) noexcept {
  const std::lock_guard lock{mutex_};
  call* before = nullptr;
  call* at = first_.load(std::memory_order_relaxed);
  while (at != nullptr && at != &one) at = (before = at)->next_;
  if (at == nullptr) return false;
  if (before == nullptr) {
    first_.store(one.next_, std::memory_order_relaxed);
  } else {
    before->next_ = one.next_;
  }
  if (last_ == &one) last_ = before;
  return true;
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
