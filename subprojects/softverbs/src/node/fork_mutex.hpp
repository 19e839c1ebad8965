#pragma once

#include <mutex>

namespace softverbs {

/// A process-wide mutex that a fork acquires, too, so that the child finds it free and the guarded
/// data consistent. A fork acquires newer fork mutexes first: under one, acquire only older ones.
/// Never destroyed before the process ends.
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
