#include "node/fork_mutex.hpp"

#include <pthread.h>

#include <utility>

namespace softverbs {

namespace {

/// The list of all fork mutexes. One thread makes them while the library is loaded.
constinit fork_mutex* newest = nullptr;

}  // namespace

fork_mutex::fork_mutex() noexcept : next_{std::exchange(newest, this)} {
  if (next_ == nullptr) ::pthread_atfork(&lock_all, &unlock_all, &unlock_all);
}

void fork_mutex::lock_all() noexcept {
  for (fork_mutex* one = newest; one != nullptr; one = one->next_) one->lock();
}

void fork_mutex::unlock_all() noexcept {
  for (fork_mutex* one = newest; one != nullptr; one = one->next_) one->unlock();
}

}  // namespace softverbs
