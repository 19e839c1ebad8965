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
  std::uint64_t id = 0;
  host_state* host = nullptr;
  std::uint64_t incarnation = 0;  ///< an event of an earlier process does nothing
  softverbs_end end{};
  std::uint32_t number = 0;  ///< a call's; that of the host whose link has ended
  event_kind kind{};

  friend bool operator>(const event& a, const event& b) noexcept {
    if (a.at != b.at) return a.at > b.at;
    return a.order != b.order ? a.order > b.order : a.id > b.id;
  }
};

class event_queue {
 public:
  void push(event e) {
    e.id = ++last_id_;
    heap_.push_back(e);
    std::push_heap(heap_.begin(), heap_.end(), std::greater<>{});
  }
  /// Calls `f` at the time of `e`.
  void push(event e, callback<void()> f) {
    e.kind = event_kind::call;
    if (free_.empty()) {
      free_.push_back(std::uint32_t(calls_.size()));
      calls_.emplace_back();
    }
    e.number = free_.back();
    free_.pop_back();
    calls_[e.number] = std::move(f);
    push(e);
  }
  event pop() noexcept {
    std::pop_heap(heap_.begin(), heap_.end(), std::greater<>{});
    const event first = heap_.back();
    heap_.pop_back();
    return first;
  }
  callback<void()> take_call(const event& e) {
    free_.push_back(e.number);
    return std::exchange(calls_[e.number], {});
  }
  [[nodiscard]] bool empty() const noexcept { return heap_.empty(); }

 private:
  std::vector<event> heap_;
  std::vector<callback<void()>> calls_;
  std::vector<std::uint32_t> free_;
  std::uint64_t last_id_ = 0;
};

}  // namespace cordma::sim::detail
