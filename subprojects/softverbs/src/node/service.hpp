#pragma once

#include "wire/time.hpp"

namespace softverbs {

/// Work that the node's engine does beside links and queue pairs: rdma_cm, multicast membership.
class node_service {
 public:
  using time = clock::time_point;

  /// The descriptor that the engine watches for input. A service with several has an epoll of them.
  [[nodiscard]] virtual int descriptor() const noexcept = 0;
  /// Does what is ready, and what is due at `now`. \thread the engine, without a lock.
  virtual void run(time now) noexcept = 0;
  /// The time at which run() is due although the descriptor is not readable; time::max(): never.
  /// \thread the engine. A service whose deadline moved forward outside run() calls
  /// node::wake_service().
  [[nodiscard]] virtual time deadline() const noexcept = 0;
  /// Called in a forked child, whose memory is a copy: closes the copies of the descriptors, and
  /// nothing else. The parent goes on with its own.
  virtual void abandon() noexcept {}

 protected:
  ~node_service() = default;
};

}  // namespace softverbs
