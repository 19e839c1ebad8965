#pragma once

#include <cordma/base/time.hpp>
#include <cordma/detail/base/callback.hpp>

#include <softverbs/simulation.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

namespace cordma::sim::detail {

class host_state;

enum class event_kind : std::uint8_t {
  program_step,  ///< a host's executor goes on
  device_step,   ///< a host's device does a piece of its work
  arrival,       ///< the oldest frame of a link's end arrives
  link_end,      ///< an end of a link is closed
  call,          ///< a function of the world
};

/// One thing that happens at a time.
struct event {
  time_point at{};
  std::uint64_t order = 0;  ///< at one time, the least comes first, and then the oldest
  host_state* host = nullptr;
  std::uint64_t incarnation = 0;  ///< an event of an earlier process does nothing
  softverbs_end end{};
  std::uint32_t number = 0;  ///< a call's; that of the host whose link has ended
  event_kind kind{};
};

class event_queue {
 public:
  void push(const event& e) {
    std::uint32_t slot;
    if (free_.empty()) {
      slot = std::uint32_t(events_.size());
      events_.push_back(e);
    } else {
      slot = free_.back();
      free_.pop_back();
      events_[slot] = e;
    }
    order_.push_back({e.at, e.order, ++last_id_, slot});
    std::push_heap(order_.begin(), order_.end(), std::greater<>{});
  }
  /// Calls `f` at the time of `e`.
  void push(event e, callback<void()> f) {
    e.kind = event_kind::call;
    if (free_calls_.empty()) {
      free_calls_.push_back(std::uint32_t(calls_.size()));
      calls_.emplace_back();
    }
    e.number = free_calls_.back();
    free_calls_.pop_back();
    calls_[e.number] = std::move(f);
    push(e);
  }
  event pop() noexcept {
    std::pop_heap(order_.begin(), order_.end(), std::greater<>{});
    const std::uint32_t slot = order_.back().slot;
    order_.pop_back();
    free_.push_back(slot);
    return events_[slot];
  }
  callback<void()> take_call(const event& e) {
    free_calls_.push_back(e.number);
    return std::exchange(calls_[e.number], {});
  }
  [[nodiscard]] bool empty() const noexcept { return order_.empty(); }

 private:
  /// The order of an event, and where it is in `events_`: small, since a heap moves these about.
  struct key {
    time_point at;
    std::uint64_t order;
    std::uint64_t id;
    std::uint32_t slot;
    auto operator<=>(const key&) const = default;
  };
  std::vector<key> order_;
  std::vector<event> events_;
  std::vector<std::uint32_t> free_;
  std::vector<callback<void()>> calls_;
  std::vector<std::uint32_t> free_calls_;
  std::uint64_t last_id_ = 0;
};

}  // namespace cordma::sim::detail
