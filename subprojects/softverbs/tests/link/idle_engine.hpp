#pragma once

#include "link/engine_protocol.hpp"

namespace softverbs::test {

/// An engine that never sleeps and is never notified.
inline engine_protocol& idle_engine() {
  struct nothing final : engine_world {
    bool work(bool) noexcept override { return false; }
    void want_doorbells(bool) noexcept override {}
    void wake_engine() noexcept override {}
    void wait(std::chrono::nanoseconds) noexcept override {}
    void yield() noexcept override {}
    clock::time_point now() noexcept override { return {}; }
  };
  static nothing world;
  static engine_protocol protocol{world};
  return protocol;
}

}  // namespace softverbs::test
