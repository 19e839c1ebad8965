#pragma once

#include <condition_variable>
#include <exception>
#include <mutex>
#include <utility>

namespace cordma::detail {

/// Waits for several threads, and keeps their first error. Use it for unique events, not on the
/// data path. The thread that waited destroys it. \thread any.
class countdown {
 public:
  explicit countdown(unsigned count) noexcept : left_{count} {}
  countdown(const countdown&) = delete;
  countdown& operator=(const countdown&) = delete;
  ~countdown() = default;

  void note(std::exception_ptr why) {
    const std::lock_guard lock{mutex_};
    if (first_ == nullptr) first_ = std::move(why);
  }
  /// Counts one arrival. Touches no member after the lock: the waiting thread may destroy the
  /// object.
  void arrive() {
    const std::lock_guard lock{mutex_};
    if (--left_ == 0) all_.notify_all();
  }
  /// Returns when all have arrived; throws the first error.
  void wait() {
    std::unique_lock lock{mutex_};
    all_.wait(lock, [this] { return left_ == 0; });
    if (first_ != nullptr) std::rethrow_exception(std::move(first_));
  }

 private:
  std::mutex mutex_;
  std::condition_variable all_;
  unsigned left_;
  std::exception_ptr first_;
};

}  // namespace cordma::detail
