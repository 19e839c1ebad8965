#pragma once

#include <cordma/detail/base/intrusive_list.hpp>

#include <cstddef>

namespace cordma {

/// Something that an executor asks in each of its turns: a completion queue. Registered with
/// `executor::add`; destroying it takes it out, at any time, also from its own `poll`.
/// \thread the executor's.
class poller : public list_hook<poller> {
 public:
  virtual ~poller() = default;

  /// Takes what is there, without a system call. How many it took: unless none, the executor asks
  /// again before it thinks of blocking.
  virtual std::size_t poll() noexcept = 0;
  /// Before the executor blocks: arm, and look again, because something may have come between the
  /// last look and the arming. False: do not block now (something came, or this one spins).
  virtual bool prepare_wait() noexcept = 0;

 protected:
  poller() noexcept = default;
  poller(poller&&) noexcept = default;
  poller& operator=(poller&&) noexcept = default;
};

}  // namespace cordma
