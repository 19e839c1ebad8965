#pragma once

#include "incoming_call.hpp"

#include <cordma/coro/event.hpp>
#include <cordma/rpc/server.hpp>

#include <algorithm>
#include <memory>
#include <vector>

namespace cordma::rpc::detail {

/// What the connections of a server share: methods, limits, counters, and the calls to use again.
class server_core final {
 public:
  explicit server_core(const server_options& options);
  server_core(const server_core&) = delete;
  server_core& operator=(const server_core&) = delete;
  ~server_core();

  void add(std::unique_ptr<served_method> m);
  /// Null: there is no such method.
  [[nodiscard]] served_method* find(std::uint64_t id) const noexcept {
    const auto found = std::ranges::lower_bound(methods_, id, {}, &id_of);
    return found != methods_.end() && (*found)->id == id ? found->get() : nullptr;
  }
  task<> serve(connection conn);
  /// \param conn  the link's connection; null in tests, where something stands for it.
  task<> serve(server_link& link, connection* conn);
  task<> serve(listener& door);
  task<> drain();
  [[nodiscard]] stream_counters streams() noexcept;

  server_counters counters;

 private:
  friend class server_link;
  class visit;
  /// A link's place among those that wait until calls of others have ended.
  struct turn : list_hook<turn> {
    explicit turn(server_link& l) noexcept : link{l} {}
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
  /// Takes a call that is closed. Others may begin.
  void end(incoming_call& c) noexcept {
    if (frame_cache::is_recycling && counters.running <= kept_max) [[likely]] {
      free_.push_front(c);
    } else {
      delete &c;
    }
    --counters.running;
    if (!starved_.empty()) [[unlikely]]
      feed();
  }
  /// Lets links begin that had to wait. Calls that are refused come back to `end`.
  void feed() noexcept;
  static std::uint64_t id_of(const std::unique_ptr<served_method>& m) noexcept { return m->id; }

  const server_options options_;
  std::vector<std::unique_ptr<served_method>> methods_;  ///< by their ids
  static constexpr std::size_t kept_max = 1024;
  intrusive_list<incoming_call> free_;  ///< As many as there were at once, the last one first.
  event draining_;
  unsigned awaited_ = 0;  ///< connections, but for those that came during a drain
  event empty_;           ///< there are none
  intrusive_list<server_link> links_;
  intrusive_list<turn> starved_;
  bool is_feeding_ = false;
  stream_counters gone_;  ///< of connections that have ended
};

}  // namespace cordma::rpc::detail
