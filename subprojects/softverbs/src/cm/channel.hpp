#pragma once

#include "cm/kernel_abi.hpp"
#include "cm/user_memory.hpp"
#include "link/unique_fd.hpp"

#include <functional>
#include <list>

namespace softverbs::cm {

struct identifier;
struct membership;

/// An event that waits in a channel.
struct event {
  rdma_ucm_event_resp answer{};
  identifier* of = nullptr;     ///< counts the event as reported
  identifier* made = nullptr;   ///< identifier of a connection that the peer requests
  membership* group = nullptr;  ///< the group, if the event is a multicast event
};

/// The events of one open rdma_cm file. Its eventfd counts those that wait, so that it polls
/// readable while there are some. Callers hold the mutex of the room.
class channel {
 public:
  explicit channel(unique_fd counter) noexcept : counter_{std::move(counter)} {}
  channel(const channel&) = delete;
  channel& operator=(const channel&) = delete;

  /// False: out of memory.
  bool push(const event& one) noexcept;
  /// Takes away the events for which `which` is true, and calls `with` for each.
  void revoke(const std::function<bool(const event&)>& which,
              const std::function<void(const event&)>& with = {}) noexcept;
  template <class Call>
  void for_each(Call&& call) const noexcept {
    for (const event& one : events_) call(one);
  }
  /// Moves the events of an identifier to the end of another channel, in their order.
  void move_events(const identifier& of, channel& to) noexcept;
  /// The oldest event; null: none.
  [[nodiscard]] const event* first() const noexcept {
    return events_.empty() ? nullptr : &events_.front();
  }
  /// Removes the oldest event. The caller took its count from the eventfd.
  void pop() noexcept { events_.pop_front(); }
  /// Gives a count back that was taken for an event that stays.
  void untake() noexcept;

  /// The eventfd. A read of it blocks as the program's own descriptor does.
  [[nodiscard]] int descriptor() const noexcept { return counter_.get(); }

  /// The node's engine runs for this channel.
  bool has_engine = false;

 private:
  void take_one() noexcept;

  unique_fd counter_;
  std::list<event> events_;
};

}  // namespace softverbs::cm
