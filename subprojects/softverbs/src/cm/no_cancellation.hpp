#pragma once

#include <pthread.h>

namespace softverbs::cm {

/// While one exists, this thread is not cancelled: what follows must be done wholly.
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

}  // namespace softverbs::cm
