#pragma once

#include <coroutine>
#include <exception>

namespace cordma::test {

/// A coroutine type that knows nothing of cordma: no scheduler, no stop token.
struct foreign {
  struct promise_type {
    foreign get_return_object() noexcept { return {}; }
    std::suspend_never initial_suspend() const noexcept { return {}; }
    std::suspend_never final_suspend() const noexcept { return {}; }
    void return_void() const noexcept {}
    void unhandled_exception() const noexcept { std::terminate(); }
  };
};

}  // namespace cordma::test
