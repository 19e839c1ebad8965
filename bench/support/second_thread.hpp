#pragma once

#include <sched.h>

#include <atomic>
#include <functional>
#include <thread>

namespace bench {

/// The calling thread runs on this processor alone, as long as this lives.
class pinned {
 public:
  explicit pinned(unsigned cpu) {
    ::sched_getaffinity(0, sizeof before_, &before_);
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    ::sched_setaffinity(0, sizeof one, &one);
  }
  ~pinned() { ::sched_setaffinity(0, sizeof before_, &before_); }
  pinned(const pinned&) = delete;

 private:
  cpu_set_t before_;
};

/// A second thread, which is there before it is needed, on another processor.
class second_thread {
 public:
  second_thread()
      : thread_{[this] {
          const pinned here{1};
          serve();
        }} {}
  ~second_thread() {
    start(nullptr);
    thread_.join();
  }
  void start(const std::function<void()>* then) {
    work_ = then;
    round_.fetch_add(1, std::memory_order_release);
  }
  void wait() const {
    while (done_.load(std::memory_order_acquire) != round_.load(std::memory_order_relaxed)) {
    }
  }

 private:
  void serve() {
    for (unsigned round = 1;; ++round) {
      while (round_.load(std::memory_order_acquire) != round) {
      }
      if (work_ == nullptr) return;
      (*work_)();
      done_.store(round, std::memory_order_release);
    }
  }
  const std::function<void()>* work_ = nullptr;
  std::atomic<unsigned> round_{0};
  std::atomic<unsigned> done_{0};
  std::thread thread_;
};

}  // namespace bench
