#pragma once

#include <cordma/transfer/completion_queue_driver.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace walk {

/// Where the two ends of a connection are.
enum class place : std::uint8_t { one_thread, two_threads, two_processes, tcp_link, two_hosts };

/// What the asking end does, and the answering end helps with.
enum class deed : std::uint8_t {
  send,
  send_slices,  ///< Gathered from three slices, scattered into three others.
  write,
  write_slices,
  write_with_imm,
  read,
  read_slices,
  compare_swap,  ///< Atomics are of 8 bytes.
  fetch_add,
  stream,        ///< Messages that are echoed; what is longer than a buffer goes by rendezvous.
  call,          ///< Request and reply have the size, ...
  call_request,  ///< ... the request alone, ...
  call_reply,    ///< ... the reply, ...
  call_source,   ///< ... memory that the handler reads, which is never nothing, ...
  call_sink      ///< ... or writes.
};
constexpr bool is_atomic(deed d) { return d == deed::compare_swap || d == deed::fetch_add; }
constexpr bool is_call(deed d) { return d >= deed::call; }

/// A walk: a handful of operations of one kind on a connection of their own.
struct cell {
  std::uint32_t number = 0;
  place where{};
  cordma::completion_mode mode{};
  deed what{};
  unsigned depth = 1;  ///< Operations at once.
  bool has_heartbeats = false;
  std::size_t size_bytes = 0;
  unsigned operations = 1;

  /// What the bytes of operation `k` are filled with.
  [[nodiscard]] std::uint64_t key(unsigned k) const noexcept {
    return (std::uint64_t{number} << 32 | k) * 0x1'0001 + 1;
  }
  /// From one operation's memory to the next one's.
  [[nodiscard]] std::size_t stride() const noexcept { return size_bytes / 64 * 64 + 64; }
};
std::string to_string(const cell& c);

/// What walks are drawn from.
struct world {
  std::vector<place> places;
  std::size_t size_max = (std::size_t{64} << 20) + 1;
  std::size_t walk_bytes_max = std::size_t{64} << 20;  ///< Or one operation's, if that is more.
  unsigned depth_max = 64;
};
/// Bounds inside cordma and softverbs that fit into `size_max`, each with the sizes beside it.
std::vector<std::size_t> size_classes(const world& from);

/// So many walks, those of one place and mode together. Each mode in each place, each size class
/// and each deed is met as often as any other, or once less.
std::vector<cell> draw(const world& from, std::uint64_t count, std::uint64_t seed);

}  // namespace walk
