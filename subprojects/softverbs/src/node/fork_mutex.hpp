#pragma once

#include <mutex>

namespace softverbs {

/// A mutex of the whole process that a fork takes, too: it waits for whoever holds it, so that the
/// child finds it free, and what it guards whole. Under it nothing is taken that a fork takes, but
/// for one that was made before it: newer ones are taken first. Never destroyed before the process
/// ends.
class fork_mutex {
 public:
  fork_mutex() noexcept;
  fork_mutex(const fork_mutex&) = delete;
  fork_mutex& operator=(const fork_mutex&) = delete;

  void lock() { mutex_.lock(); }
  void unlock() noexcept { mutex_.unlock(); }

 private:
  static void lock_all() noexcept;
  static void unlock_all() noexcept;

  std::mutex mutex_;
  fork_mutex* next_;
};

}  // namespace softverbs
