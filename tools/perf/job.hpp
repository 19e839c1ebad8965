#pragma once

#include <cordma/connection/connection_options.hpp>
#include <cordma/messages/message_stream.hpp>
#include "pace.hpp"
#include "path_options.hpp"
#include "queue/completion_queue_driver.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

namespace perf {

/// The operation that a job repeats; the last three over UC.
enum class operation : std::uint8_t {
  write,
  read,
  send,
  write_imm,
  cas,
  faa,
  atomic_write,
  rpc,
  stream,
  ud,
  multicast,
  xrc,
  uc_write,
  uc_send,
  uc_write_imm
};
inline constexpr std::uint8_t operation_count = 15;

const char* to_string(operation op) noexcept;
const char* to_string(cordma::completion_mode mode) noexcept;
/// \errors std::invalid_argument: no such one; lists them.
operation parse_operation(std::string_view text);
cordma::completion_mode parse_mode(std::string_view text);
/// \errors std::invalid_argument: no seconds that `option` may have: from 0.001, or from 0.
std::chrono::milliseconds parse_seconds(const std::string& text, const char* option = "--duration",
                                        bool may_be_zero = false);

/// A job to run: one line of the table.
struct job {
  operation op = operation::write;
  std::uint64_t size_bytes = 64;
  std::uint32_t depth = 1;        ///< Operations that a connection has under way.
  std::uint32_t connections = 1;  ///< In all; spread over the threads.
  std::uint32_t threads = 1;      ///< On each side, each with a runtime of its own.
  cordma::completion_mode mode = cordma::completion_mode::event;
  std::uint64_t operations = 0;  ///< In all; 0: as many as `duration` allows.
  std::chrono::milliseconds duration{2000};
  bool is_endless = false;  ///< Neither of the two ends it, but the user.
  /// Time of operations that do not count; unset: `warm_up_operations` and `warm_up_time` limit it.
  std::optional<std::chrono::milliseconds> warm_up{};
  path_options path{};
  double rate = 0;  ///< Operations of an open loop a second, in all. 0: a closed loop.
  gap_kind gaps = gap_kind::fixed;
  bool is_bidirectional = false;  ///< The server does the same, on the client's memory.

  static constexpr std::uint64_t size_min = 8;
  static constexpr std::uint64_t size_max = std::uint64_t{1} << 30;
  /// A call's header has to fit into the longest message, too.
  static constexpr std::uint64_t rpc_size_max = std::uint64_t{512} << 20;
  /// The longest MTU; a port may have a shorter one.
  static constexpr std::uint64_t datagram_size_max = 4096;
  static constexpr std::uint32_t depth_max = 1024;
  static constexpr std::uint32_t connections_max = 256;
  static constexpr std::uint32_t threads_max = 64;
  static constexpr std::chrono::hours duration_max{1};
};

/// \errors std::invalid_argument: the first value out of range, with its name and the way out.
void check(const job& j);

[[nodiscard]] constexpr bool is_unreliable(operation op) noexcept {
  return op >= operation::uc_write;
}
/// Returns the transport of a connection; one over RC stands beside that of `xrc`.
[[nodiscard]] constexpr cordma::verbs::queue_pair_type transport_of(operation op) noexcept {
  return is_unreliable(op) ? cordma::verbs::queue_pair_type::uc
                           : cordma::verbs::queue_pair_type::rc;
}
/// Returns the operation that is the same over RC.
[[nodiscard]] constexpr operation over_rc(operation op) noexcept {
  switch (op) {
    case operation::uc_write: return operation::write;
    case operation::uc_send: return operation::send;
    case operation::uc_write_imm: return operation::write_imm;
    case operation::xrc: return operation::send;
    default: return op;
  }
}
/// After such a pause, messages over UC that are still missed count as lost.
inline constexpr std::chrono::milliseconds lost_after{200};
[[nodiscard]] constexpr bool is_atomic(operation op) noexcept {
  return op == operation::cas || op == operation::faa || op == operation::atomic_write;
}
/// Tells whether each operation needs a receive of the server's; the server posts only so many.
[[nodiscard]] constexpr bool uses_receives(operation op) noexcept {
  return over_rc(op) == operation::send || over_rc(op) == operation::write_imm;
}
[[nodiscard]] constexpr bool uses_datagrams(operation op) noexcept {
  return op == operation::ud || op == operation::multicast;
}
/// Tells whether an operation ends with an answer of the server's program.
[[nodiscard]] constexpr bool is_echo(operation op) noexcept {
  return op == operation::rpc || op == operation::stream || uses_datagrams(op);
}

/// Tells whether the server can do the same on the client's memory, beside it on the connection.
[[nodiscard]] constexpr bool can_be_bidirectional(operation op) noexcept {
  return !is_echo(op) && !uses_receives(op) && !is_unreliable(op);
}

/// Places for `size_bytes` that a connection has on each side: one for each worker, while they fit.
[[nodiscard]] std::size_t slots(const job& j) noexcept;
/// Returns the receives that the server keeps posted on a connection, or the buffers of its pool
/// for `xrc`. The client has as many credits, and gets half of them back with each message of the
/// server's.
[[nodiscard]] std::uint32_t receives(const job& j) noexcept;
/// The memory that all its connections take on one side, but for a few KiB each.
[[nodiscard]] std::uint64_t memory_bytes(const job& j) noexcept;

/// Bounds of operations that do not count, if the user did not choose a warm-up.
inline constexpr std::uint64_t warm_up_operations = 1000;
inline constexpr std::chrono::milliseconds warm_up_time{200};

/// The options of each of the job's connections, on either side.
[[nodiscard]] cordma::connection_options connection_options(const job& j);
[[nodiscard]] cordma::stream_options stream_options(const job& j) noexcept;

/// "write, 64 bytes, depth 16, …": for people.
std::string to_string(const job& j);

/// The bytes in which a client sends a job to a server.
struct job_frame {
  std::uint64_t size_bytes = 0;
  std::uint64_t duration_ms = 0;  ///< 0: nobody knows, but no longer than `duration_max`.
  std::uint64_t operations = 0;
  double rate = 0;
  std::uint32_t depth = 0;
  std::uint32_t connections = 0;
  std::uint32_t threads = 0;
  std::uint8_t op = 0;
  std::uint8_t mode = 0;
  std::uint8_t gaps = 0;
  std::uint8_t flags = 0;  ///< Bits: `flag_endless`, `flag_bidirectional`.
  path_frame path{};
  std::uint32_t warm_up_ms = 0;  ///< 0: `job::warm_up` is unset; else the value plus 1.

  static constexpr std::uint8_t flag_endless = 1;
  static constexpr std::uint8_t flag_bidirectional = 2;
};
job_frame encode(const job& j) noexcept;
/// \errors std::invalid_argument: as `check`; the frame names no operation or mode.
job decode(const job_frame& f);

}  // namespace perf
