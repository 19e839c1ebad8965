#pragma once

#include <cordma/queue/completion.hpp>

namespace cordma {

class completion_queue_driver;
class executor;
class lending;
class mr_allocator;
class shared_receives;

namespace verbs {
class context;
class protection_domain;
}  // namespace verbs

/// Finds a completion queue for a queue pair.
class driver_supplier {
 public:
  /// One that has room for `entries` requests, and for what the queue pair's pool, if it has one,
  /// can complete there. \errors `error`.
  virtual completion_queue_driver& driver_for(unsigned entries, const shared_receives* pool) = 0;

 protected:
  ~driver_supplier() = default;
};

/// What connections are made from; `runtime` owns it all. Everything outlives the connections, and
/// their closing, which `executor::closer` sees to.
struct connection_resources {
  executor& home;
  verbs::context& ctx;
  verbs::protection_domain& pd;
  driver_supplier& drivers;
  cordma::lending& lending;
  mr_allocator& memory;  ///< That agents lend from, and live in.
  /// In manual mode nothing completes on its own: heartbeats are not counted, flushes not awaited.
  completion_mode mode = completion_mode::event;
};

}  // namespace cordma
