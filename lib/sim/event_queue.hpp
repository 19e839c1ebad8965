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
  loss,          ///< the oldest frame of a link's end does not
  link_end,      ///< an end of a link is closed
  call,          ///< a function of the world's user
};

/// One thing that happens at a time. Of several at one time, a random number decides.
struct event {
  time_point at{};
  std::uint64_t order = 0;
  std::uint64_t id = 0;
  event_kind kind{};
  host_state* host = nullptr;
  std::uint64_t incarnation = 0;  ///< an event of an earlier process does nothing
  softverbs_end end{};
  callback<void()> call{};

  friend bool operator>(const event& a, const event& b) noexcept {
    if (a.at != b.at) return a.at > b.at;
    return a.order != b.order ? a.order > b.order : a.id > b.id;
  }
};

class event_queue {
 public:
  void push(event e) {
    e.id = ++last_id_;
    heap_.push_back(std::move(e));
    std::push_heap(heap_.begin(), heap_.end(), std::greater<>{});
  }
  event pop() {
    std::pop_heap(heap_.begin(), heap_.end(), std::greater<>{});
    event first = std::move(heap_.back());
    heap_.pop_back();
    return first;
  }
  [[nodiscard]] bool empty() const noexcept { return heap_.empty(); }

 private:
  std::vector<event> heap_;
  std::uint64_t last_id_ = 0;
};

}  // namespace cordma::sim::detail
