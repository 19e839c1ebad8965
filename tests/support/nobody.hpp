#pragma once

#include <cordma/detail/coro/waiter.hpp>

#include <coroutine>

namespace cordma::test {

/// A parent that is never told: the tests destroy the frames themselves.
struct nobody : waiter {
  nobody()
      : waiter{[](waiter&) noexcept -> std::coroutine_handle<> { return std::noop_coroutine(); }} {}
};

}  // namespace cordma::test
