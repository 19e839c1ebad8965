#pragma once

#include "cm/event_channel.hpp"
#include "used_nonces.hpp"

#include <optional>

namespace cordma::detail {

/// What the ways in share that need more than a socket; a runtime has one. \thread the executor's.
class ways_in {
 public:
  explicit ways_in(cordma::executor& executor) noexcept : executor_{executor} {}

  /// Returns rdma_cm's events; the first call opens them. \errors as `cm::event_channel`.
  cm::event_channel& cm_events() {
    if (!cm_events_) cm_events_.emplace(executor_);
    return *cm_events_;
  }

  used_nonces infos;  ///< Of the peers that prepared connections were made with.

 private:
  cordma::executor& executor_;
  std::optional<cm::event_channel> cm_events_;
};

}  // namespace cordma::detail
