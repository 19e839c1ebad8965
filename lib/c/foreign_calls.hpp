#pragma once

#include <cordma/base/time.hpp>
#include <cordma/detail/io/poller.hpp>
#include <cordma/io/executor.hpp>

#include <atomic>
#include <cstdint>
#include <mutex>
#include <thread>

namespace cordma::c {

/// Calls that foreign threads make on a context's own thread. A call is an object of its caller,
/// who waits: nothing is allocated. The thread is woken only when it sleeps. A call that has not
/// begun at its deadline is taken back.
class foreign_calls final : public poller {
 public:
  /// A call that waits for its end. \thread `run` and `end`: the context's.
  class call {
   public:
    call() noexcept = default;
    call(call&&) = delete;
    virtual void run() noexcept = 0;
    void end() noexcept;
    /// Waits for the end, or until `deadline`. Returns false if that has come first.
    [[nodiscard]] bool wait_until(time_point deadline) noexcept;

   protected:
    ~call() = default;

   private:
    friend class foreign_calls;
    static constexpr std::uint32_t running = 0, awaited = 1, ended = 2;
    call* next_ = nullptr;
    std::atomic<std::uint32_t> ended_{running};
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
  /// Takes back a call that has not begun. Returns false if it has.
  [[nodiscard]] bool take_back(call& one) noexcept;

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
