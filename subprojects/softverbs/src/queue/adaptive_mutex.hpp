#pragma once

#include "wire/step.hpp"

#include <pthread.h>

namespace softverbs {

/// A mutex for sections shorter than a sleep and a wake (glibc's adaptive mutex): a thread spins
/// for a while before it sleeps. With a plain mutex, two threads that send to each other's queue
/// pairs would sleep alternately.
class adaptive_mutex {
 public:
  adaptive_mutex() noexcept = default;
  adaptive_mutex(const adaptive_mutex&) = delete;
  adaptive_mutex& operator=(const adaptive_mutex&) = delete;

  void lock() noexcept {
    explorer::lock(this);
    ::pthread_mutex_lock(&mutex_);
  }
  bool try_lock() noexcept {
    return explorer::try_lock(this) && ::pthread_mutex_trylock(&mutex_) == 0;
  }
  void unlock() noexcept {
    ::pthread_mutex_unlock(&mutex_);
    explorer::unlock(this);
  }

 private:
  pthread_mutex_t mutex_ = PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP;
};

}  // namespace softverbs
