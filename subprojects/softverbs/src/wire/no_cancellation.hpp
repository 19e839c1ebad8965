#pragma once

#include <pthread.h>

namespace softverbs {

/// While one exists, pthread_cancel(3) does not end this thread. Most system calls of libc are
/// cancellation points. A thread that ended there would keep its locks, and in a noexcept function
/// it would end the process. \cost two atomic operations of this thread.
class no_cancellation {
 public:
  no_cancellation() noexcept { ::pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before_); }
  no_cancellation(const no_cancellation&) = delete;
  no_cancellation& operator=(const no_cancellation&) = delete;
  ~no_cancellation() { ::pthread_setcancelstate(before_, nullptr); }

  /// The thread's state before.
  [[nodiscard]] int before() const noexcept { return before_; }

 private:
  int before_ = PTHREAD_CANCEL_ENABLE;
};

}  // namespace softverbs
