#pragma once

#include "control_channel.hpp"
#include "request/queue_pair.hpp"

#include <cordma/detail/agent/lending.hpp>

#include <optional>

namespace cordma {

/// What the two halves of an agent, the lender and the borrower, share.
struct agent_context {
  cordma::executor& executor;
  queue_pair& data;
  control_channel& channel;
  cordma::lending& lending;
  mr_allocator& memory;
  const agent_options options;
  const verbs::port_info port;
  const verbs::gid_entry gid;
  /// The protection domain is this connection's alone.
  const bool has_own_domain;
  lending_counters counters{};
  std::optional<failure> last_refusal{};  ///< Of a request of the peer's.

  /// Ends the connection; its owner hears of it by the queue pair's failure.
  void break_connection(errc why, const char* call) const noexcept {
    data.abort({.code = why, .call = call});
  }
};

}  // namespace cordma
