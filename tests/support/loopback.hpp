#pragma once

#include "queue/send_queue.hpp"
#include "support/access.hpp"
#include "support/raw_verbs.hpp"

#include <cordma/memory/mr_allocator.hpp>
#include <cordma/verbs/device.hpp>
#include "request/queue_pair.hpp"
#include "runtime/async_events.hpp"

#include <memory>
#include <utility>
#include <vector>

namespace cordma::test {

using support::raw::connect;

struct loopback_options {
  completion_queue_options cq{};
  verbs::queue_pair_capabilities capabilities{};
  bool connected = true;
  std::uint8_t min_rnr_timer = 12;  ///< `connect`'s; more where sends wait for receives
  /// Null: CLOCK_MONOTONIC. With one that is turned by hand, `run_until` waits for ever.
  const time_source* clock = nullptr;
};

/// Two connected queue pairs, `a` and `b`, on one completion queue of the device that the
/// environment's CORDMA_TEST_DEVICE names, and all they need.
class loopback {
 public:
  explicit loopback(const loopback_options& options = {});

  std::unique_ptr<queue_pair> make_queue_pair(const verbs::queue_pair_capabilities& capabilities,
                                              shared_receives* pool = nullptr);
  void connect(callback_queue_pair& one, callback_queue_pair& other);
  /// A new pair of connected ones in place of `a` and `b`.
  void reconnect();
  local_mr memory(std::size_t size_bytes, verbs::access access = all_access) {
    return allocator(access).allocate_zeroed(size_bytes);
  }
  /// Returns the allocator for that access, which the first call makes.
  mr_allocator& allocator(verbs::access access);
  /// Memory whose bytes tell where they are, so that none can be mistaken for another.
  local_mr pattern(std::size_t size_bytes, unsigned seed = 1);

  /// Runs an operation, or a coroutine without captures that is given this.
  template <class Body>
  auto run(Body&& body) {
    if constexpr (std::is_invocable_v<Body, loopback&>) {
      return executor.run(std::forward<Body>(body)(*this));
    } else {
      return executor.run(std::forward<Body>(body));
    }
  }
  /// The outcome of one operation, as a `result`.
  template <class Op>
  auto outcome(Op&& op) {
    return executor.run(as_result(std::forward<Op>(op)));
  }
  /// Turns of the executor until `done()`; fails the test after five seconds.
  template <class Condition>
  void run_until(Condition done);

  verbs::context ctx;
  verbs::port_info port;
  cordma::executor executor;
  verbs::protection_domain pd;
  std::vector<std::unique_ptr<mr_allocator>> allocators;
  verbs::queue_pair_capabilities capabilities;
  std::uint8_t min_rnr_timer;
  completion_queue_driver driver;
  async_events events;
  std::unique_ptr<queue_pair> a;
  std::unique_ptr<queue_pair> b;

 private:
  [[noreturn]] static void too_late();
};

template <class Condition>
void loopback::run_until(Condition done) {
  const time_point deadline = executor.now() + std::chrono::seconds{20};
  while (!done()) {
    if (executor.now() > deadline) too_late();
    executor.run(executor.sleep_for(std::chrono::microseconds{200}));
  }
}

/// Tells whether two ranges of bytes hold the same.
bool same_bytes(std::span<const std::byte> one, std::span<const std::byte> other) noexcept;

}  // namespace cordma::test
