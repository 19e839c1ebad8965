#include "node/fork_mutex.hpp"

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include <semaphore>
#include <thread>

namespace softverbs {

namespace {

fork_mutex guarded;
int begun = 0;  // Under `guarded`, as is:
int ended = 0;

std::binary_semaphore forking{0};
bool tells = false;

void notify() noexcept {
  if (tells) forking.release();
}

}  // namespace

TEST_CASE("a fork waits for whoever holds a mutex of the process", "[node]") {
  // Registered after the mutex's: called before the fork takes it.
  static const int registered = ::pthread_atfork(&notify, nullptr, nullptr);
  REQUIRE(registered == 0);
  std::binary_semaphore held{0};
  std::binary_semaphore forked{0};  // Until then the thread is there: the child cannot join it.
  std::thread holder{[&] {
    guarded.lock();
    ++begun;
    held.release();
    forking.acquire();
    ++ended;
    guarded.unlock();
    forked.acquire();
  }};
  held.acquire();
  tells = true;
  const pid_t child = ::fork();
  if (child == 0) {
    constexpr unsigned seconds_max = 20;
    ::alarm(seconds_max);
    guarded.lock();
    ::_exit(begun == 1 && ended == 1 ? 0 : 1);
  }
  tells = false;
  forked.release();
  holder.join();
  int status = -1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  guarded.lock();  // The parent's is free again, too.
  guarded.unlock();
}

}  // namespace softverbs
