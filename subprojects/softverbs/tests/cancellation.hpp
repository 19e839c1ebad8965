#pragma once

#include <pthread.h>

namespace softverbs::test {

/// Runs `work` on a thread that is cancelled already: at the first cancellation point, it ends.
/// True if `work` has none, so that the thread ends after it.
template <class Work>
bool runs_while_cancelled(Work work) {
  struct shared {
    Work& work;
    bool is_done = false;
  } both{work};
  const auto run = [](void* argument) -> void* {
    auto& given = *static_cast<shared*>(argument);
    ::pthread_cancel(::pthread_self());
    given.work();
    given.is_done = true;
    ::pthread_testcancel();
    return nullptr;
  };
  pthread_t thread{};
  if (::pthread_create(&thread, nullptr, run, &both) != 0) return false;
  void* result = nullptr;
  ::pthread_join(thread, &result);
  return both.is_done && result == PTHREAD_CANCELED;
}

}  // namespace softverbs::test
