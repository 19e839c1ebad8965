#pragma once

#include "control_channel.hpp"
#include "io/host_calls.hpp"
#include "io/logger.hpp"
#include "lending.hpp"
#include "request/queue_pair.hpp"

#include <optional>

namespace cordma {

/// The parts that an agent works with. All but `data` outlive the agent.
struct agent_resources {
  queue_pair& data;
  cordma::lending& lending;
  mr_allocator& memory;
  verbs::port_info port;
  verbs::gid_entry gid;
  bool has_own_domain = false;           ///< The protection domain is this connection's alone.
  const detail::logger* log = nullptr;   ///< Null: nothing is logged.
  const socket_address* peer = nullptr;  ///< The peer's address, for the log.
};

/// The state that an agent shares with its two halves, the lender and the borrower.
struct agent_context : agent_resources {
  control_channel& channel;
  agent_options options;
  cordma::executor& executor = data.driver().executor();
  detail::lease_witness* const witness = executor.reactor().host().leases();  ///< null: none
  remote_mr_slice flush_word{};  ///< the peer's `lending::flush_word`, once the agent has started
  lending_counters counters{};
  std::optional<failure> last_refusal{};  ///< The last refusal of a request of the peer.

  /// Logs what becomes of memory that the peer has, or asks for.
  void log_lease(event_log::kind event, std::size_t bytes, std::string_view note,
                 const failure* why = nullptr) const noexcept {
    detail::log_to(
        log, event,
        {.peer = peer, .qpn = data.verbs().num(), .bytes = bytes, .note = note, .why = why});
  }
  /// Ends the connection; its owner hears of it by the queue pair's failure.
  void break_connection(errc why, const char* call) const noexcept {
    data.abort({.code = why, .call = call});
  }
  /// Ends the connection because a request of the agent's own has failed. A work completion's
  /// failure breaks the queue pair by itself, at the latest after this call.
  void break_after(const failure& request, const char* call) const noexcept {
    const bool is_told = request.code.category() == error::completion_category();
    if (!is_told && !data.has_failed()) break_connection(errc::disconnected, call);
  }
};

}  // namespace cordma
