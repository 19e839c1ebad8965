#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace cordma {

/// Kinds by which requests are counted.
enum class request_kind : std::uint8_t {
  send,  ///< With or without immediate data; includes the SENDs of streams and RPC.
  write,
  read,
  atomic,  ///< `compare_swap`, `fetch_add` and `atomic_write`.
  bind,
  invalidate,
  receive,        ///< A queue pair's own receives, and shared ones.
  agent_send,     ///< Agent frames, which lend memory and keep connections alive.
  agent_receive,  ///< Receives of agent frames, which use a separate queue pair that nobody awaits.
};

namespace detail {

inline constexpr std::size_t request_kinds = 9;
/// Kinds that move data, which come first: send, write, read, atomic.
inline constexpr std::size_t data_kinds = std::size_t(request_kind::atomic) + 1;

}  // namespace detail

/// Returns the name that metrics use: "compare_swap", "fetch_add" and "atomic_write" are "atomic".
constexpr std::string_view name_of(request_kind kind) noexcept {
  constexpr std::array<std::string_view, detail::request_kinds> names{
      "send",       "write",   "read",       "atomic",       "bind",
      "invalidate", "receive", "agent_send", "agent_receive"};
  return names[std::size_t(kind)];
}

/// Counters of one kind of request. Each posted request ends once, as completed or as failed, when
/// the device is done with it, even if no task waits.
struct request_counters {
  std::uint64_t posted = 0;     ///< Requests given to the device.
  std::uint64_t completed = 0;  ///< Posted requests that succeeded.
  /// Posted requests that failed, were flushed, or lost their queue pair.
  std::uint64_t failed = 0;
  /// Requests never given to the device: bad argument, no lease, no connection.
  std::uint64_t refused = 0;
  std::uint64_t cancelled = 0;  ///< Waits that a stop ended, before the posting or after it.

  /// Returns the requests in flight; approximate if the snapshot was taken while requests ended.
  [[nodiscard]] std::uint64_t in_flight() const noexcept {
    const std::uint64_t ended = completed + failed;
    return posted > ended ? posted - ended : 0;
  }
  request_counters& operator+=(const request_counters& other) noexcept {
    posted += other.posted;
    completed += other.completed;
    failed += other.failed;
    refused += other.refused;
    cancelled += other.cancelled;
    return *this;
  }
};

/// Counts the outcomes of requests.
struct transfer_counters {
  std::array<request_counters, detail::request_kinds> requests{};
  std::uint64_t stalls = 0;  ///< Requests that waited for room in a send queue.
  /// Messages that waited for credit: `stream_counters::credit_waits`.
  std::uint64_t credit_waits = 0;
  /// Requests that ended because the peer had no receive (RNR_RETRY_EXC).
  std::uint64_t rnr_exceeded = 0;

  [[nodiscard]] request_counters& of(request_kind kind) noexcept {
    return requests[std::size_t(kind)];
  }
  [[nodiscard]] const request_counters& of(request_kind kind) const noexcept {
    return requests[std::size_t(kind)];
  }
  transfer_counters& operator+=(const transfer_counters& other) noexcept {
    for (std::size_t kind = 0; kind < detail::request_kinds; ++kind)
      requests[kind] += other.requests[kind];
    stalls += other.stalls;
    credit_waits += other.credit_waits;
    rnr_exceeded += other.rnr_exceeded;
    return *this;
  }
};

}  // namespace cordma
