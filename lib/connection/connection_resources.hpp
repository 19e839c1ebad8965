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

namespace detail {

class bootstrap_services;
class logger;

/// Finds a completion queue for a queue pair.
class driver_supplier {
 public:
  /// Returns a driver with room for `cqes` requests, and for what the queue pair's pool, if any,
  /// can complete there. \errors `error`.
  virtual completion_queue_driver& driver_for(unsigned cqes, const shared_receives* pool) = 0;

 protected:
  ~driver_supplier() = default;
};

}  // namespace detail

/// Parts that connections are made from; `runtime` owns them. All parts outlive the connections and
/// their closing, which `executor::closer` runs.
struct connection_resources {
  cordma::executor& executor;
  verbs::context& ctx;
  verbs::protection_domain& pd;
  detail::driver_supplier& drivers;
  cordma::lending& lending;
  mr_allocator& memory;  ///< Memory that agents lend and use.
  detail::bootstrap_services& bootstraps;
  /// In manual mode nothing completes by itself: heartbeats are not counted, and flushes not
  /// awaited.
  completion_mode mode = completion_mode::event;
  const detail::logger* log = nullptr;  ///< Null: nothing is logged.
};

}  // namespace cordma
