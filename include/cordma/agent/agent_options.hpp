#pragma once

#include <cordma/base/time.hpp>
#include <cordma/detail/base/export.hpp>
#include <cordma/verbs/access.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>

namespace cordma {

/// The protection that the device enforces while memory is lent (docs/security.md). A greater value
/// is stronger.
enum class isolation : std::uint8_t {
  /// No window: a registration with remote access, in a protection domain that only this connection
  /// uses. Whoever breaks into that connection and guesses the key reaches the loan.
  shared_key = 1,
  /// A window of this connection's queue pair, on a registration of just the loan: for devices that
  /// check the registration's range and not the window's. Each loan costs a registration.
  exact_registered = 2,
  /// A window of this connection's queue pair with exactly the loan's range.
  exact = 3,
};
CORDMA_EXPORT const char* to_string(isolation level) noexcept;

/// The memory that a connection grants to its peer. Peers may ask for nothing unless `bytes_max`
/// says so.
struct lending_policy {
  static constexpr verbs::access lendable_access =
      verbs::access::remote_read | verbs::access::remote_write | verbs::access::remote_atomic;

  /// Bytes that the peer may have at once by asking. A lease counts as its alignment if that is
  /// more.
  std::size_t bytes_max = 0;
  /// Leases open at once with this peer, by asking or by our offers. Memory that calls lend is not
  /// counted here.
  unsigned leases_max = 1024;
  /// The two limits above, for all connections of the runtime together.
  std::size_t total_bytes_max = std::numeric_limits<std::size_t>::max();
  unsigned total_leases_max = 65536;
  /// The peer gets no other access, whatever it asks for.
  verbs::access access_max = lendable_access;
  /// A lease, and a renewal, is this long at most.
  time_span lease_max = std::chrono::seconds{60};

  /// Memory is lent with the strongest of these that the device has, and not at all below the
  /// weakest.
  isolation isolation_min = isolation::exact_registered;
  isolation isolation_max = isolation::exact;
  /// The peer addresses a loan from 0, and learns none of our addresses. Not with `shared_key`.
  bool zero_based = false;

  /// How long after its lease's end, or since it was asked, a peer may take to return memory.
  time_span grace = std::chrono::seconds{1};
  /// How long the device may then take to invalidate the window, before the connection is broken.
  time_span revoke_timeout = std::chrono::seconds{2};
};

/// Options of a connection's agent. Both sides have one, or none does.
struct agent_options {
  bool enabled = true;
  lending_policy lending{};
  /// Loans that the peer offers wait for `receive_remote_mr`; one beyond that is declined.
  unsigned offers_max = 64;
  /// A request on borrowed memory is refused when less than that part of its lease remains, …
  unsigned operation_margin_percent = 10;
  /// … or less than this, whichever is longer: so long may a request that was posted take.
  time_span operation_margin_min = std::chrono::milliseconds{50};
  /// How long a call waits for an answer of the peer, unless the call names a time.
  time_span request_timeout = std::chrono::seconds{5};
};

/// The options of `request_remote_mr`.
struct remote_mr_request {
  std::size_t alignment = 64;  ///< A power of two, up to 2 MiB.
  verbs::access access = lending_policy::lendable_access;
  time_span lease = std::chrono::seconds{10};
  std::optional<time_span> timeout{};  ///< Unset: `agent_options::request_timeout`.
};

/// How `send_local_mr` lends.
struct loan_options {
  verbs::access access = lending_policy::lendable_access;
  time_span lease = std::chrono::seconds{10};
};

/// Counts since the connection was made.
struct lending_counters {
  std::uint64_t granted = 0;       ///< Requests of the peer that were granted.
  std::uint64_t refused = 0;       ///< Requests of the peer that were refused.
  std::uint64_t offered = 0;       ///< Loans of ours.
  std::uint64_t returned = 0;      ///< Loans that the peer returned, handed over or not.
  std::uint64_t expired = 0;       ///< The peer had not returned it by then.
  std::uint64_t revoked = 0;       ///< Loans that this side revoked.
  std::uint64_t disconnected = 0;  ///< Loans that ended with the connection.
  std::uint64_t forced = 0;        ///< Windows invalidated without an answer of the peer.
  std::uint64_t stranded = 0;      ///< The device would not end the access: the memory is kept.
  unsigned open = 0;               ///< Leases, now.
  std::size_t bytes_lent = 0;      ///< Now.
  std::size_t bytes_kept = 0;      ///< Registered for the next request, and lent to nobody, now.
  unsigned borrowed = 0;           ///< Leases that we have from the peer, now.
};

/// One lease that is open, for people.
struct lease_info {
  std::string peer{};        ///< The peer's address; empty in an agent's own list.
  bool is_borrowed = false;  ///< From the peer; else lent to it.
  std::size_t size_bytes = 0;
  verbs::access access = verbs::access::none;
  cordma::isolation isolation = isolation::exact;
  std::chrono::milliseconds remaining{};

  lease_info() noexcept = default;
};

}  // namespace cordma
