#pragma once

#include <cordma/detail/io/poller.hpp>
#include <cordma/io/executor.hpp>

#include <atomic>
#include <cstdint>
#include <mutex>
#include <thread>

namespace cordma::c {

/// Calls that foreign threads make on a context's own thread. A call is an object of its caller,
/// who waits: nothing is allocated. The thread is woken only when it sleeps.
class foreign_calls final : public poller {
 public:
  /// A call that waits for its end. \thread `run` and `end`: the context's.
  class call {
   public:
    call() noexcept = default;
    call(call&&) = delete;
    virtual void run() noexcept = 0;
    void end() noexcept {
      // The waiter may destroy the call as soon as it sees the value.
      ended_.store(1, std::memory_order_release);
      ended_.notify_one();
    }
    void wait() const noexcept {
      while (ended_.load(std::memory_order_acquire) == 0) ended_.wait(0);
    }

   protected:
    ~call() = default;

   private:
    friend class foreign_calls;
    call* next_ = nullptr;
    std::atomic<int> ended_{0};
  };

  foreign_calls() noexcept;
  ~foreign_calls() override = default;

  /// Takes calls for `of` from now on. \thread the context's, as the next two.
  void open(executor& of);
  /// Runs what came, and takes no more calls.
  void close() noexcept;
  std::size_t poll() noexcept override;
  bool prepare_wait() noexcept override;

  /// Hands over a call. Returns false when none are taken: closed, or in the child of a fork.
  [[nodiscard]] bool submit(call& one);

  std::thread thread;  ///< The context's, which `cordma_release` joins.

 private:
  std::mutex mutex_;
  std::atomic<call*> first_{nullptr};
  call* last_ = nullptr;
  executor* executor_ = nullptr;
  bool is_asleep_ = false;
  const std::uint32_t process_;
};

}  // namespace cordma::c
