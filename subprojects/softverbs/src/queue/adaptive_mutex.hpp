#pragma once

#include "wire/step.hpp"

#include <pthread.h>

namespace softverbs {

/// For what is held for less time than a sleep and a wake take, by threads that mostly run: who
/// finds it taken looks some more times before it sleeps (glibc's adaptive mutex). Two threads that
/// send to each other's queue pairs would else sleep in turn.
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
