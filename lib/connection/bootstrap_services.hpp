#pragma once

#include "cm/event_channel.hpp"
#include "gid_resolver.hpp"
#include "used_nonces.hpp"

#include <optional>

namespace cordma::detail {

/// The state that a runtime's bootstraps share. \thread the executor's.
class bootstrap_services {
 public:
  bootstrap_services(cordma::executor& executor, verbs::protection_domain& pd) noexcept
      : gids{executor, pd}, executor_{executor} {}

  /// Returns rdma_cm's events; the first call opens them. \errors as `cm::event_channel`.
  cm::event_channel& cm_events() {
    if (!cm_events_) cm_events_.emplace(executor_);
    return *cm_events_;
  }

  used_nonces infos;  ///< Nonces of the peers of prepared connections.
  gid_resolver gids;  ///< Finds peers whose GID is foreign.

 private:
  cordma::executor& executor_;
  std::optional<cm::event_channel> cm_events_;
};

}  // namespace cordma::detail
