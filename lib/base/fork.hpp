#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>

namespace cordma::detail {

/// Process epoch, which grows in the child of each fork. An object that remembers another one is
/// the parent's.
extern constinit std::atomic<std::uint32_t> process_epoch_now;

[[nodiscard]] inline std::uint32_t process_epoch() noexcept {
  return process_epoch_now.load(std::memory_order_relaxed);
}

/// A mutex of the whole process. A fork waits for the thread that holds it, so that the child finds
/// the mutex free and its data consistent. It is a leaf: no other lock that a fork waits for is
/// taken under it. Each is made at load time, and never destroyed.
class fork_mutex {
 public:
  fork_mutex() noexcept;
  fork_mutex(fork_mutex&&) = delete;

  void lock() { mutex_.lock(); }
  void unlock() noexcept { mutex_.unlock(); }

  /// Locks (or unlocks) all such mutexes: for the handlers of a fork.
  static void lock_all() noexcept;
  static void unlock_all() noexcept;

 private:
  std::mutex mutex_;
  fork_mutex* next_;
};

}  // namespace cordma::detail
