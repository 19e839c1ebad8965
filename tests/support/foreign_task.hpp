#pragma once

#include <coroutine>
#include <exception>
#include <utility>

namespace support {

/// A coroutine type that knows nothing of cordma: it starts at once, and has no scheduler and no
/// stop token to give.
class foreign_task {
 public:
  struct promise_type {
    foreign_task get_return_object() noexcept {
      return foreign_task{std::coroutine_handle<promise_type>::from_promise(*this)};
    }
    std::suspend_never initial_suspend() const noexcept { return {}; }
    std::suspend_always final_suspend() const noexcept { return {}; }
    void return_void() const noexcept {}
    void unhandled_exception() noexcept { thrown = std::current_exception(); }
    std::exception_ptr thrown;
  };

  foreign_task(foreign_task&& other) noexcept : frame_{std::exchange(other.frame_, nullptr)} {}
  foreign_task& operator=(foreign_task&& other) noexcept {
    std::swap(frame_, other.frame_);
    return *this;
  }
  ~foreign_task() {
    if (frame_) frame_.destroy();
  }
  [[nodiscard]] bool done() const noexcept { return frame_.done(); }
  void rethrow() const {
    if (frame_.promise().thrown) std::rethrow_exception(frame_.promise().thrown);
  }

 private:
  explicit foreign_task(std::coroutine_handle<promise_type> frame) noexcept : frame_{frame} {}
  std::coroutine_handle<promise_type> frame_;
};

}  // namespace support
