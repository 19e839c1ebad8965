#pragma once

#include "queue/completion_queue_driver.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace walk {

/// Where the two ends of a connection are.
enum class setting : std::uint8_t { one_thread, two_threads, two_processes, tcp_link, two_hosts };

/// The asking end does it, and the answering end helps.
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
  setting where{};
  cordma::completion_mode mode{};            ///< The asking end's.
  cordma::completion_mode answering_mode{};  ///< The other end's.
  deed what{};
  unsigned depth = 1;  ///< Operations at once.
  bool has_heartbeats = false;
  std::size_t size_bytes = 0;
  unsigned operations = 1;

  /// Tells whether one pair can take both walks.
  [[nodiscard]] bool goes_with(const cell& other) const noexcept {
    return where == other.where && mode == other.mode && answering_mode == other.answering_mode;
  }
  /// Gives the word with which operation `k` fills its bytes.
  [[nodiscard]] std::uint64_t key(unsigned k) const noexcept {
    return (std::uint64_t{number} << 32 | (k + 1)) * 0xd1b5'4a32'd192'ed03;
  }
  /// The bytes from one operation's memory to the next one's.
  [[nodiscard]] std::size_t stride() const noexcept { return size_bytes / 64 * 64 + 64; }
};
std::string to_string(const cell& c);

/// The bounds of what `draw` draws.
struct world {
  std::vector<setting> settings;
  std::size_t size_max = (std::size_t{64} << 20) + 1;
  std::size_t walk_bytes_max = std::size_t{32} << 20;  ///< One operation may have more.
  unsigned depth_max = 64;
};
/// Bounds inside cordma and softverbs that fit into `size_max`, each with the sizes beside it.
std::vector<std::size_t> size_classes(const world& from);

/// Draws `count` walks; those of one pair stand together. Each mode in each place, each size class
/// and each deed comes as often as any other, or once less. Mostly both ends have the same mode.
std::vector<cell> draw(const world& from, std::uint64_t count, std::uint64_t seed);

}  // namespace walk
