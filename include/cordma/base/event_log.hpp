#pragma once

#include <cordma/base/time.hpp>
#include <cordma/detail/base/callback.hpp>
#include <cordma/detail/base/export.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace cordma {

struct failure;

/// Where a runtime's events go: who connected, was refused, was lost or got memory, and why.
/// docs/logging.md lists the events.
struct CORDMA_EXPORT event_log {
  /// How urgent an event is, the most urgent first.
  enum class level : std::uint8_t {
    error,    ///< The device or a part of it does not work.
    warning,  ///< A peer was lost or refused, or did not keep to its lease.
    info,     ///< Connections and listeners come and go.
    debug,    ///< Memory is lent and returned.
  };

  enum class kind : std::uint8_t {
    connected,           ///< Two sides have agreed; each logs its own end.
    connect_failed,      ///< This side's attempt to connect.
    client_refused,      ///< A client of this side's, or the client's handshake failed.
    closed,              ///< A connection that one of the sides closed.
    lost,                ///< A connection that neither side closed.
    listening,           ///< A listener was opened.
    listener_closed,     ///< A listener that takes no more clients.
    accept_failed,       ///< A client that could not be taken, or was gone at once.
    lease_opened,        ///< Memory that the peer may use from now on.
    lease_returned,      ///< The holder has returned the memory.
    lease_handed_over,   ///< The holder has handed the memory over to this side's program.
    lease_revoked,       ///< This side's program has taken the memory back.
    lease_expired,       ///< The holder has not returned the memory in time.
    lease_disconnected,  ///< Ended with the connection.
    lease_refused,       ///< A request of the peer for memory.
    memory_kept,    ///< The device does not end the peer's access: the memory is not used again.
    rank_lost,      ///< A rank of a group is dead.
    device_failed,  ///< The device, or one of its completion queues.
    port_down,
    port_up,
    fabric_changed,  ///< A port's addresses, partitions or subnet manager.
  };
  /// Returns the level, which is the same for all events of a kind.
  [[nodiscard]] static level level_of(kind of) noexcept;

  /// One event: who, what and why. The record and what it refers to last as long as the hook's
  /// call. Peers choose parts of the texts. All are printable ASCII: other bytes were replaced by
  /// '?'.
  struct CORDMA_EXPORT record {
    event_log::kind kind{};
    event_log::level level{};
    time_point time{};             ///< Time of the executor's clock, mostly CLOCK_MONOTONIC.
    std::string_view peer{};       ///< "10.0.0.2:40112", or the name that was connected to.
    std::string_view identity{};   ///< The name that the peer has proved; empty: none.
    std::string_view local{};      ///< This side's address.
    std::string_view bootstrap{};  ///< "tcp", "unix", "rdma_cm" or "exchanged" (connecting.md).
    std::uint32_t qpn = 0;         ///< This side's queue pair; 0: none.
    std::uint64_t bytes = 0;       ///< The memory that is lent or was asked for; 0: none.
    std::string_view note{};       ///< More in words.
    const failure* why = nullptr;  ///< Null: nothing has failed.

    /// Writes one line without its end, and returns its length. A line that does not fit ends in
    /// "...". \cost no allocation.
    std::size_t write_to(std::span<char> into) const noexcept;
    /// Returns the line, up to 1,023 bytes of it.
    [[nodiscard]] std::string to_string() const;
  };

  /// Called with each record, on the runtime's thread. The hook must not use the runtime or what
  /// belongs to it, except for `executor::post`: the caller is in the middle of its work. A hook
  /// that is slow holds up the runtime. What the hook throws is dropped. Null: CORDMA_LOG of the
  /// environment says what is written to standard error.
  callback<void(const record& one)> hook{};
  /// The least urgent level that is logged. Other events make no record, and cost a load and a
  /// branch.
  level least_urgent = level::info;
};

CORDMA_EXPORT const char* to_string(event_log::level level) noexcept;
/// Returns the name: "lease_expired".
CORDMA_EXPORT const char* to_string(event_log::kind kind) noexcept;

}  // namespace cordma
