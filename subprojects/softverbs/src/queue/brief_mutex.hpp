#pragma once

#include "wire/step.hpp"

#include <pthread.h>

namespace softverbs {

/// For what is held for less time than a sleep and a wake take, by threads that mostly run: who
/// finds it taken looks some more times before it sleeps (glibc's adaptive mutex). Two threads that
/// send to each other's queue pairs would else sleep in turn.
class brief_mutex {
 public:
  brief_mutex() noexcept = default;
  brief_mutex(const brief_mutex&) = delete;
  brief_mutex& operator=(const brief_mutex&) = delete;

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
