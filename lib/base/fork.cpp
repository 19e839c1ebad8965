#include "fork.hpp"

#include <pthread.h>

#include <utility>

namespace cordma::detail {

constinit std::atomic<std::uint32_t> process_epoch_now{1};

namespace {

constinit fork_mutex* newest = nullptr;

void in_child() noexcept {
  process_epoch_now.fetch_add(1, std::memory_order_relaxed);
  fork_mutex::unlock_all();
}

}  // namespace

fork_mutex::fork_mutex() noexcept : next_{std::exchange(newest, this)} {}

void fork_mutex::lock_all() noexcept {
  for (fork_mutex* one = newest; one != nullptr; one = one->next_) one->lock();
}

void fork_mutex::unlock_all() noexcept {
  for (fork_mutex* one = newest; one != nullptr; one = one->next_) one->unlock();
}

namespace {

/// pthread_atfork fails when memory is short at load time. Forks then take no mutex.
[[maybe_unused]] const int registered =
    ::pthread_atfork(&fork_mutex::lock_all, &fork_mutex::unlock_all, &in_child);

}  // namespace

}  // namespace cordma::detail
