#pragma once

#include "incoming_call.hpp"

#include <cordma/coro/event.hpp>
#include <cordma/rpc/server.hpp>

#include <algorithm>
#include <memory>
#include <vector>

namespace cordma::rpc::detail {

/// What a `server` is, and its connections share: methods, limits, counters, and spare calls.
///
/// A server is serving, then draining: `drain` sets `draining_`, once. Calls that find `calls_max`
/// running stay in their link's inbox; the link waits in `starved_` until a call ends.
class server_core final {
 public:
  explicit server_core(const server_options& options);
  server_core(const server_core&) = delete;
  server_core& operator=(const server_core&) = delete;
  ~server_core();

  void add(std::unique_ptr<served_method> m);
  /// The method of that id, or null.
  [[nodiscard]] served_method* find(std::uint64_t id) const noexcept {
    const auto found = std::ranges::lower_bound(methods_, id, {}, &id_of);
    return found != methods_.end() && (*found)->id == id ? found->get() : nullptr;
  }
  task<> serve(connection conn);
  /// \param conn  the link's connection; null in tests, which have something in its place.
  task<> serve(server_link& link, connection* conn);
  task<> serve(listener& door);
  task<> drain();
  [[nodiscard]] stream_counters streams() noexcept;

  server_counters counters;

 private:
  friend class server_link;
  class served_link;
  /// A link that waits until calls of other links have ended.
  struct starved_link : list_hook<starved_link> {
    explicit starved_link(server_link& l) noexcept : link{l} {}
    server_link& link;
  };

  task<> serve_and_count(connection conn);
  [[nodiscard]] bool is_full() const noexcept { return counters.running >= options_.calls_max; }
  incoming_call& begin() {
    incoming_call& c = free_.empty() ? *new incoming_call : free_.pop_front();
    ++counters.running;
    ++counters.calls;
    return c;
  }
  /// Takes back a call that is closed. A starved link may begin another.
  void end(incoming_call& c) noexcept {
    if (frame_cache::is_recycling && counters.running <= kept_max) [[likely]] {
      free_.push_front(c);
    } else {
      delete &c;
    }
    --counters.running;
    if (!starved_.empty()) [[unlikely]]
      serve_starved();
  }
  /// Lets starved links begin calls. A call that is refused calls `end`, which comes back here.
  void serve_starved() noexcept;
  static std::uint64_t id_of(const std::unique_ptr<served_method>& m) noexcept { return m->id; }

  const server_options options_;
  std::vector<std::unique_ptr<served_method>> methods_;  ///< by their ids
  static constexpr std::size_t kept_max = 1024;
  intrusive_list<incoming_call> free_;  ///< at most `kept_max`, the last used first
  event draining_;
  unsigned awaited_ = 0;  ///< connections that a drain waits for
  event empty_;           ///< set when `awaited_` is 0
  intrusive_list<server_link> links_;
  intrusive_list<starved_link> starved_;
  bool is_serving_starved_ = false;
  stream_counters gone_;  ///< of connections that have ended
};

}  // namespace cordma::rpc::detail
