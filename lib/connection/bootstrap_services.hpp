#pragma once

#include "cm/event_channel.hpp"
#include "gid_resolver.hpp"
#include "used_nonces.hpp"

#include <cordma/detail/base/counter.hpp>

#include <optional>

namespace cordma::detail {

/// Counters of all sockets of datagrams of a runtime, those that were dropped included.
struct datagram_totals {
  counter routes_found, routes_made, routes_given_up, routes_failed, groups_joined;
};

/// Counters of a runtime's connections, from the end of the handshake on.
struct connection_totals {
  counter made, ended, lost;
};

/// The state that a runtime's bootstraps and sockets of datagrams share. \thread the executor's.
class bootstrap_services {
 public:
  bootstrap_services(cordma::executor& executor, verbs::protection_domain& pd) noexcept
      : gids{executor, pd}, datagram_gids{executor, pd}, executor_{executor} {}

  /// Returns rdma_cm's events; the first call opens them. \errors as `cm::event_channel`.
  cm::event_channel& cm_events() {
    if (!cm_events_) cm_events_.emplace(executor_);
    return *cm_events_;
  }

  used_nonces infos;  ///< Nonces of the peers of prepared connections.
  gid_resolver gids;  ///< Finds peers whose GID is foreign.
  /// Finds those to whom sockets send. Strangers can name many: they hold up no handshake.
  gid_resolver datagram_gids;
  datagram_totals datagrams;
  connection_totals connections;

 private:
  cordma::executor& executor_;
  std::optional<cm::event_channel> cm_events_;
};

}  // namespace cordma::detail
