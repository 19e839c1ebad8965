#pragma once

#include "meeting_frame.hpp"

#include <cordma/base/time.hpp>
#include <cordma/connection/connection.hpp>
#include <cordma/connection/listener.hpp>
#include <cordma/coro/event.hpp>
#include <cordma/messages/message_stream.hpp>

#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

namespace cordma::detail {

/// The ranks that have come to rank 0, and the connections over which they wait for the others.
/// Every message of a peer is checked. A peer that is wrong, silent or lost ends its own connection
/// only, and frees its rank for another. \thread the executor's.
class meeting_registry {
 public:
  /// How long a peer may take until it has said which rank it is.
  static constexpr std::chrono::seconds arrival_timeout{5};
  /// Connections at once, besides one of each rank.
  static constexpr unsigned strangers_max = 64;

  /// Begins with rank 0, which is this process. A peer may take `told_timeout` to hear the end.
  meeting_registry(unsigned size, group_member self, time_span told_timeout);

  /// Serves a peer until it has heard how the meeting ended. \errors why it heard nothing.
  task<> serve(connection conn);
  /// Keeps why a peer was lost.
  void on_failure(const handler_failure& lost);

  /// Set when all have come, or by `refuse`.
  [[nodiscard]] event& has_ended() noexcept { return has_ended_; }
  /// Ends the meeting without a group, and tells those that have come why.
  void refuse(const failure& why);
  [[nodiscard]] std::vector<unsigned> missing() const;
  /// Returns why the last peer was turned away; empty: none was.
  [[nodiscard]] const std::string& last_failure() const noexcept { return last_failure_; }
  /// Returns the result, once `has_ended` is set and no rank is missing.
  [[nodiscard]] roster take() && { return std::move(all_); }

 private:
  class seat;

  void check(const meeting_frame::arrival& from) const;
  void enter(const meeting_frame::arrival& from);
  void leave(unsigned rank) noexcept;

  roster all_;
  std::vector<bool> has_come_;
  std::size_t missing_;
  const time_span told_timeout_;
  std::vector<meeting_frame::bytes> told_;  // Messages to all peers, once the meeting has ended.
  std::string last_failure_;
  event has_ended_;
};

}  // namespace cordma::detail
