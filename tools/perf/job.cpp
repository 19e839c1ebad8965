#include "job.hpp"

#include "size.hpp"

#include <algorithm>
#include <array>
#include <stdexcept>

namespace perf {
namespace {

using cordma::completion_mode;

/// The memory of a connection on each side: enough for a place for each worker of small operations.
constexpr std::uint64_t memory_wanted = std::uint64_t{64} << 20;
constexpr std::uint32_t receives_min = 64;
/// Requests beyond the operations themselves: credits, heartbeats, what a stream keeps for itself.
constexpr std::uint32_t requests_besides = 16;
constexpr std::uint32_t queue_min = 128;
/// Inline bytes that a message stream needs (`message_stream`).
constexpr std::uint32_t stream_inline_min = 40;
/// Bytes of a call's header, and more.
constexpr std::uint64_t header_bytes = 1024;

constexpr std::array<const char*, operation_count> operation_names{
    "write",  "read", "send",      "write-imm", "cas",      "faa",     "atomic-write", "rpc",
    "stream", "ud",   "multicast", "xrc",       "uc-write", "uc-send", "uc-write-imm"};
constexpr std::array<const char*, 3> mode_names{"event", "busy", "adaptive"};

template <class Names>
std::uint8_t find(const Names& names, std::string_view what, std::string_view text) {
  const auto found =
      std::ranges::find(names, text, [](const char* n) -> std::string_view { return n; });
  if (found != names.end()) return std::uint8_t(found - names.begin());
  std::string all;
  for (const char* name : names) all += (all.empty() ? "" : ", ") + std::string{name};
  throw std::invalid_argument{std::string{what} + " '" + std::string{text} + "': it is one of " +
                              all};
}

}  // namespace

const char* to_string(operation op) noexcept { return operation_names[std::size_t(op)]; }
const char* to_string(completion_mode mode) noexcept {
  return mode == completion_mode::manual ? "manual" : mode_names[std::size_t(mode)];
}
operation parse_operation(std::string_view text) {
  return operation(find(operation_names, "--op", text));
}
completion_mode parse_mode(std::string_view text) {
  return completion_mode(find(mode_names, "--mode", text));
}

std::chrono::milliseconds parse_seconds(const std::string& text, const char* option,
                                        bool may_be_zero) {
  std::size_t read = 0;
  double seconds = 0;
  try {
    seconds = std::stod(text, &read);
  } catch (const std::exception&) {
    read = 0;
  }
  const double most = std::chrono::duration<double>(job::duration_max).count();
  const bool is_in_range = (seconds >= 0.001 || (may_be_zero && seconds == 0)) && seconds <= most;
  if (read != text.size() || text.empty() || !is_in_range) {
    throw std::invalid_argument{std::string{option} + " '" + text + "': seconds, from " +
                                (may_be_zero ? "0" : "0.001") + " to 3600"};
  }
  return std::chrono::milliseconds{std::int64_t(seconds * 1000)};
}

namespace {

void check_path(const job& j) {
  check(j.path);
  const bool has_stream = j.op == operation::rpc || j.op == operation::stream;
  if (has_stream && j.path.inline_bytes && *j.path.inline_bytes < stream_inline_min) {
    throw std::invalid_argument{"--inline " + std::to_string(*j.path.inline_bytes) + ": " +
                                to_string(j.op) + " needs " + std::to_string(stream_inline_min) +
                                " bytes or more"};
  }
  const char* const of_connections = option_of_connections(j.path);
  if (uses_datagrams(j.op) && of_connections != nullptr) {
    throw std::invalid_argument{std::string{of_connections} + ": " + to_string(j.op) +
                                " measures no connection that has one; leave it out"};
  }
  const char* const of_retries = option_of_retries(j.path);
  if (is_unreliable(j.op) && of_retries != nullptr) {
    throw std::invalid_argument{std::string{of_retries} +
                                ": UC repeats nothing; leave it out, or use an operation over RC"};
  }
}

void check_load(const job& j) {
  if (j.is_endless && j.operations != 0) {
    throw std::invalid_argument{"--operations " + std::to_string(j.operations) +
                                ": it ends what --forever does not; leave one of them out"};
  }
  if (j.warm_up && (j.warm_up->count() < 0 || *j.warm_up > job::duration_max)) {
    throw std::invalid_argument{"--warm-up " + std::to_string(j.warm_up->count()) +
                                " ms: it goes up to an hour"};
  }
  const bool is_rate =
      j.rate >= pace_options::per_second_min && j.rate <= pace_options::per_second_max;
  if (j.rate != 0 && !is_rate) {
    throw std::invalid_argument{"--rate " + std::to_string(j.rate) +
                                ": it goes from 0.1 to 100M operations a second"};
  }
  if (j.is_bidirectional && !can_be_bidirectional(j.op)) {
    throw std::invalid_argument{
        std::string{"--bidirectional: "} + to_string(j.op) +
        (is_echo(j.op) ? " goes there and back already; leave it out"
                       : " is not done in both directions; use write, read, cas, faa or "
                         "atomic-write")};
  }
}

}  // namespace

void check(const job& j) {
  check_range("--size", j.size_bytes, job::size_min, job::size_max);
  check_range("--depth", j.depth, 1, job::depth_max);
  check_range("--connections", j.connections, 1, job::connections_max);
  check_range("--threads", j.threads, 1, job::threads_max);
  if (j.duration.count() < 0 || j.duration > job::duration_max) {
    throw std::invalid_argument{"--duration " + std::to_string(j.duration.count()) +
                                " ms: it goes up to an hour"};
  }
  if (is_atomic(j.op) && j.size_bytes != 8) {
    throw std::invalid_argument{"--size " + size_text(j.size_bytes) + ": " + to_string(j.op) +
                                " is of 8 bytes; leave --size out"};
  }
  if (j.op == operation::rpc && j.size_bytes > job::rpc_size_max) {
    throw std::invalid_argument{"--size " + size_text(j.size_bytes) +
                                ": with its header a call is longer than the longest message; rpc "
                                "goes up to " +
                                size_text(job::rpc_size_max)};
  }
  if (uses_datagrams(j.op) && j.size_bytes > job::datagram_size_max) {
    throw std::invalid_argument{"--size " + size_text(j.size_bytes) +
                                ": a datagram is no longer than an MTU; " + to_string(j.op) +
                                " goes up to " + size_text(job::datagram_size_max)};
  }
  if (j.connections < j.threads) {
    throw std::invalid_argument{"--connections " + std::to_string(j.connections) +
                                ": each of the " + std::to_string(j.threads) +
                                " threads needs one; take more, or fewer --threads"};
  }
  check_path(j);
  check_load(j);
}

std::size_t slots(const job& j) noexcept {
  return std::size_t(std::clamp<std::uint64_t>(memory_wanted / j.size_bytes, 1, j.depth));
}

std::uint32_t receives(const job& j) noexcept {
  if (!uses_receives(j.op)) return 0;
  const std::uint32_t wanted = std::max(receives_min, 2 * j.depth);
  if (j.op != operation::xrc) return wanted;
  // Each buffer of a pool has memory of its own.
  return std::uint32_t(std::clamp<std::uint64_t>(memory_wanted / j.size_bytes, 2, wanted));
}

std::uint64_t memory_bytes(const job& j) noexcept {
  const cordma::stream_options stream = stream_options(j);
  std::uint64_t buffers = is_echo(j.op) ? stream.depth * stream.buffer_bytes : 0;
  if (j.op == operation::xrc) buffers = receives(j) * j.size_bytes;
  if (uses_datagrams(j.op)) buffers = 2 * j.depth * job::datagram_size_max;
  return (slots(j) * j.size_bytes + buffers) * j.connections;
}

cordma::connection_options connection_options(const job& j) {
  cordma::connection_options o;
  o.transport = transport_of(j.op);
  o.capabilities.send_wr_max = std::max(queue_min, j.depth + requests_besides);
  o.capabilities.recv_wr_max = std::max({queue_min, receives(j), j.depth + requests_besides});
  apply(j.path, o);
  return o;
}

cordma::stream_options stream_options(const job& j) noexcept {
  cordma::stream_options o;
  o.depth = std::max(o.depth, j.depth + requests_besides / 2);
  o.message_bytes_max = std::size_t(
      std::clamp<std::uint64_t>(j.size_bytes + header_bytes, o.buffer_bytes, job::size_max));
  o.large_ahead = unsigned(std::min<std::size_t>(slots(j), 64));
  return o;
}

std::string to_string(const job& j) {
  std::string text = std::string{to_string(j.op)} + ", " + size_text(j.size_bytes) +
                     " bytes, depth " + std::to_string(j.depth) + ", " +
                     std::to_string(j.connections) + " connection(s), " +
                     std::to_string(j.threads) + " thread(s), " + to_string(j.mode);
  if (j.rate != 0) text += ", " + rate_text(j.rate) + " a second";
  if (j.is_bidirectional) text += ", both directions";
  return text;
}

job_frame encode(const job& j) noexcept {
  const bool has_time = j.operations == 0 && !j.is_endless;
  return {.size_bytes = j.size_bytes,
          .duration_ms = has_time ? std::uint64_t(j.duration.count()) : 0,
          .operations = j.operations,
          .rate = j.rate,
          .depth = j.depth,
          .connections = j.connections,
          .threads = j.threads,
          .op = std::uint8_t(j.op),
          .mode = std::uint8_t(j.mode),
          .gaps = std::uint8_t(j.gaps),
          .flags = std::uint8_t((j.is_endless ? job_frame::flag_endless : 0) |
                                (j.is_bidirectional ? job_frame::flag_bidirectional : 0)),
          .path = encode(j.path),
          .warm_up_ms = j.warm_up ? std::uint32_t(j.warm_up->count()) + 1 : 0};
}

job decode(const job_frame& f) {
  constexpr std::uint8_t known = job_frame::flag_endless | job_frame::flag_bidirectional;
  const bool is_known = f.op < operation_count && f.mode < mode_names.size() && f.gaps <= 1 &&
                        (f.flags & ~known) == 0 && f.path.reserved == 0;
  if (!is_known) {
    throw std::invalid_argument{"the client asks for operation " + std::to_string(f.op) +
                                ", mode " + std::to_string(f.mode) + " and flags " +
                                std::to_string(f.flags) + ": is it of another version?"};
  }
  const auto longest = std::chrono::milliseconds{job::duration_max};
  check_range("duration in ms", f.duration_ms, 0, std::uint64_t(longest.count()));
  job j{.op = operation(f.op),
        .size_bytes = f.size_bytes,
        .depth = f.depth,
        .connections = f.connections,
        .threads = f.threads,
        .mode = completion_mode(f.mode),
        .operations = f.operations,
        .duration = f.duration_ms == 0 ? longest : std::chrono::milliseconds{f.duration_ms},
        .is_endless = (f.flags & job_frame::flag_endless) != 0,
        .path = decode(f.path),
        .rate = f.rate,
        .gaps = gap_kind(f.gaps),
        .is_bidirectional = (f.flags & job_frame::flag_bidirectional) != 0};
  if (f.warm_up_ms != 0) j.warm_up = std::chrono::milliseconds{f.warm_up_ms - 1};
  check(j);
  return j;
}

}  // namespace perf
