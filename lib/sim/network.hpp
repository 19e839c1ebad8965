#pragma once

#include "event_queue.hpp"

#include <cordma/base/time.hpp>
#include <cordma/detail/base/callback.hpp>

#include <softverbs/simulation.h>

#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <utility>
#include <vector>

namespace cordma::sim::detail {

class host_state;
class world_state;

/// The links between hosts: when frames arrive, and which do not.
class network {
 public:
  explicit network(world_state& w) noexcept : world_{w} {}
  /// A host's device has sent a frame, or one of its links has failed.
  void sent(host_state& host, const softverbs_end& from, const softverbs_frame& frame);
  void ended(host_state& host, const softverbs_end& end);
  /// Has `f` called when a message of one host to another arrives, after what `last` tells; moves
  /// `last`.
  void post(const host_state& from, const host_state& to, time_point& last, callback<void()> f);
  void cut(const host_state& from, const host_state& to);
  void heal();
  /// A host's process is gone, and what it had sent with it.
  void forget(const host_state& gone);

  /// An event of the world: the oldest frame of an end arrives, unless a cut keeps it.
  void arrive(const softverbs_end& from);
  /// An event of the world: an end hears that its link has ended.
  void end_link(const event& e);
  /// Lets a frame that is under way to that host arrive at once. False: there is none.
  bool hurry(const host_state& to);

 private:
  struct frame {
    std::uint64_t number = 0;
    bool is_lost = false;
    duration late{};  ///< how long behind its turn it arrives
    bool is_doubled = false;
  };
  /// One direction of a link.
  struct flow {
    softverbs_end end{};
    unsigned from = 0, to = 0;
    time_point last_arrival{};
    std::deque<frame> in_flight;
    unsigned hurried = 0;  ///< frames that arrived before their events
    unsigned held = 0;     ///< frames that a cut keeps back
  };
  struct held_message {
    unsigned from, to;
    callback<void()> f;
  };

  [[nodiscard]] flow& flow_of(const softverbs_end& from, unsigned from_host);
  [[nodiscard]] bool is_cut(unsigned from, unsigned to) const {
    return !cuts_.empty() && cuts_.contains({from, to});
  }
  void take_next(flow& f);
  void inject_later(const flow& f, softverbs_copy* copy, duration by);
  void arrive(unsigned from, unsigned to, const callback<void()>& f);

  using end_key = std::pair<void*, std::uint32_t>;
  world_state& world_;
  std::uint64_t frames_ = 0;
  std::deque<flow> flows_;  ///< in the order of their first frames
  std::map<end_key, flow*> flow_of_end_;
  std::set<std::pair<unsigned, unsigned>> cuts_;
  std::vector<held_message> held_messages_;
  std::vector<event> held_ends_;
};

}  // namespace cordma::sim::detail
