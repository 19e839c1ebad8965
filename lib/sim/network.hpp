#pragma once

#include <cordma/base/time.hpp>
#include <cordma/detail/base/callback.hpp>

#include <softverbs/simulation.h>

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
  [[nodiscard]] softverbs_world calls() noexcept {
    softverbs_world calls{};
    calls.context = this;
    calls.has_work = &has_work;
    calls.sent = &sent;
    calls.ended = &ended;
    calls.find = &find;
    return calls;
  }
  /// Has `f` called when a message of one host to another arrives, after what `last` tells; moves
  /// `last`.
  void post(const host_state& from, const host_state& to, time_point& last, callback<void()> f);
  /// A message has arrived, unless a cut keeps it.
  void arrive(unsigned from, unsigned to, const callback<void()>& f);
  void cut(const host_state& one, const host_state& other);
  void heal();
  /// Lets the oldest frame of an end arrive, or not.
  void arrive(const softverbs_end& from, bool is_lost);
  void end_link(const softverbs_end& end);

 private:
  static void has_work(void* context, softverbs_host* host);
  static void sent(void* context, const softverbs_end* from, const softverbs_frame* frame);
  static void ended(void* context, const softverbs_end* end);
  static softverbs_host* find(void* context, const ibv_gid* gid, std::uint16_t slot);
  [[nodiscard]] bool is_cut(const softverbs_end& from) const;

  using end_key = std::pair<void*, std::uint32_t>;
  world_state& world_;
  std::map<end_key, time_point> last_arrival_;
  std::set<std::pair<unsigned, unsigned>> cuts_;
  struct held_message {
    unsigned from, to;
    callback<void()> f;
  };
  std::vector<std::pair<softverbs_end, bool>> held_;  ///< frames that a cut keeps back
  std::vector<held_message> held_messages_;
};

}  // namespace cordma::sim::detail
