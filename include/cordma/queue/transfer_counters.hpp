#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace cordma {

/// What requests are counted by.
enum class request_kind : std::uint8_t {
  send,  ///< With or without immediate; also what streams and RPC make of messages.
  write,
  read,
  atomic,  ///< compare_swap and fetch_add.
  bind,
  invalidate,
  receive,        ///< Of a queue pair's own receives, and of shared ones.
  agent_send,     ///< Frames of the agents, which lend memory and keep connections alive: on queue
  agent_receive,  ///< pairs of their own, and nobody awaits them.
};

namespace detail {

inline constexpr std::size_t request_kinds = 9;
/// Those that move data, which come first: send, write, read, atomic.
inline constexpr std::size_t data_kinds = std::size_t(request_kind::atomic) + 1;

}  // namespace detail

/// As in metrics: "compare_swap" and "fetch_add" are "atomic".
constexpr std::string_view name_of(request_kind kind) noexcept {
  constexpr std::array<std::string_view, detail::request_kinds> names{
      "send",       "write",   "read",       "atomic",       "bind",
      "invalidate", "receive", "agent_send", "agent_receive"};
  return names[std::size_t(kind)];
}

/// Of one kind of request. Each that is posted ends as completed or as failed, once, when the
/// device is done with it, whoever still waits.
struct request_counters {
  std::uint64_t posted = 0;     ///< Given to the device.
  std::uint64_t completed = 0;  ///< Of those: succeeded.
  std::uint64_t failed = 0;     ///< Of those: did not, or were flushed, or their queue pair went.
  std::uint64_t refused = 0;    ///< Never given to the device: an argument, a lease, no connection.
  std::uint64_t cancelled = 0;  ///< Waits that a stop ended: before the posting or after it.

  /// Of a snapshot that was taken while requests ended, about.
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

/// What became of requests.
struct transfer_counters {
  std::array<request_counters, detail::request_kinds> requests{};
  std::uint64_t stalls = 0;        ///< Requests that waited for room in a send queue.
  std::uint64_t credit_waits = 0;  ///< Messages that waited: `stream_counters::credit_waits`.
  std::uint64_t rnr_exceeded = 0;  ///< Ended since the peer had no receive (RNR_RETRY_EXC).

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
