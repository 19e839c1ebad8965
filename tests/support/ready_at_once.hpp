#pragma once

#include <cordma/coro/operation.hpp>

namespace support {

/// Operation that is ready as soon as it is awaited, and is told so through the ready list.
struct ready_at_once : cordma::operation_base<ready_at_once> {
  using value_type = void;
  bool start(cordma::waiter& w, const cordma::environment& env) noexcept {
    env.scheduler->schedule(w);
    return false;
  }
  [[nodiscard]] bool failed() const noexcept { return false; }
  void take() noexcept {}
};

}  // namespace support
