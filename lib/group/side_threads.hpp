#pragma once

#include "base/failures.hpp"

#include <cordma/coro/event.hpp>
#include <cordma/coro/task.hpp>
#include <cordma/io/executor.hpp>

#include <atomic>
#include <chrono>
#include <exception>
#include <list>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <stop_token>
#include <system_error>
#include <thread>
#include <type_traits>
#include <utility>

namespace cordma::detail {

/// Runs blocking calls, each on a thread of its own. When the task that waits is stopped or
/// destroyed, the thread is asked to stop. Neither the task nor its executor waits for the thread
/// then, only the destructor does. \thread any.
class side_threads {
 public:
  side_threads() = default;
  side_threads(const side_threads&) = delete;

  /// Gives what `job(std::stop_token)` returns, which is no void, or throws what it threw.
  /// \errors EAGAIN: no thread can be made.
  template <class Job>
  task<std::invoke_result_t<Job&, const std::stop_token&>> run(cordma::executor& executor,
                                                               Job job) {
    using value = std::invoke_result_t<Job&, const std::stop_token&>;
    const auto got = std::make_shared<outcome<value>>(executor);
    const leaver<value> own{got,
                            begin([got, job = std::move(job)](const std::stop_token& stop) mutable {
                              try {
                                got->value.emplace(job(stop));
                              } catch (...) {
                                got->why = std::current_exception();
                              }
                              got->tell(got, stop);
                            })};
    co_await got->has_come.wait();
    // The exception is this thread's alone from here on: the other still has `got`.
    if (got->why) std::rethrow_exception(std::exchange(got->why, nullptr));
    co_return std::move(*got->value);
  }

 private:
  static constexpr std::chrono::milliseconds memory_pause{10};

  template <class T>
  struct outcome {
    explicit outcome(cordma::executor& of) noexcept : has_come{of}, executor{&of} {}

    /// Resumes the task, unless it has gone. The lock keeps its executor meanwhile.
    void tell(const std::shared_ptr<outcome>& self, const std::stop_token& stop) noexcept {
      for (;; std::this_thread::sleep_for(memory_pause)) {
        const std::lock_guard lock{mutex};
        if (executor == nullptr || stop.stop_requested()) return;
        try {
          executor->post([self]() noexcept { self->has_come.set(); });
          return;
        } catch (const std::bad_alloc&) {
          continue;
        }
      }
    }

    event has_come;
    std::optional<T> value;
    std::exception_ptr why;
    std::mutex mutex;
    cordma::executor* executor;  // Null once the task does not wait any more.
  };

  template <class T>
  struct leaver {
    std::shared_ptr<outcome<T>> got;
    std::stop_source stop;
    ~leaver() {
      const std::lock_guard lock{got->mutex};
      got->executor = nullptr;
      stop.request_stop();
    }
  };

  struct worker {
    std::atomic<bool> has_ended = false;
    std::jthread thread;
  };

  template <class F>
  std::stop_source begin(F f) {
    const std::lock_guard lock{mutex_};
    workers_.remove_if([](const worker& one) { return one.has_ended.load(); });
    worker& own = workers_.emplace_back();
    try {
      own.thread = std::jthread{[&own, f = std::move(f)](const std::stop_token& stop) mutable {
        f(std::move(stop));
        own.has_ended = true;
      }};
    } catch (const std::system_error& e) {
      workers_.pop_back();
      throw_errno(e.code().value(), "pthread_create", "no thread for a call that blocks");
    }
    return own.thread.get_stop_source();
  }

  std::mutex mutex_;
  std::list<worker> workers_;  // Destroyed first, which stops and joins the threads.
};

}  // namespace cordma::detail
