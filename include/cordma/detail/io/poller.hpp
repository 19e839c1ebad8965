#pragma once

#include <cordma/detail/base/intrusive_list.hpp>

#include <cstddef>

namespace cordma {

/// Source of events that an executor asks in each event-loop iteration: a completion queue.
/// `executor::add` registers it. Destroying it at any time unregisters it, also from its own
/// `poll`.
/// \thread the executor's.
class poller : public list_hook<poller> {
 public:
  virtual ~poller() = default;

  /// Handles what is there, without a system call, and returns how much. After a result above 0 the
  /// executor asks again before it considers blocking.
  virtual std::size_t poll() noexcept = 0;
  /// Prepares the executor's sleep: arms, and polls again, because something may have come between
  /// the last poll and the arming. Returns false if the executor must not block now: something
  /// came, or this poller spins.
  virtual bool prepare_wait() noexcept = 0;

 protected:
  poller() noexcept = default;
  poller(poller&&) noexcept = default;
  poller& operator=(poller&&) noexcept = default;
};

}  // namespace cordma
