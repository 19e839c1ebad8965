#pragma once

#include "link/link.hpp"
#include "memory/key_table.hpp"

#include <infiniband/verbs.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>

namespace softverbs {

struct queue_pair;
struct completion_queue;

inline constexpr std::uint32_t slot_bits = 10;   ///< processes of a host
inline constexpr std::uint32_t index_bits = 14;  ///< QPs of a process
inline constexpr std::uint32_t index_mask = (1u << index_bits) - 1;

constexpr std::uint16_t slot_of(std::uint32_t qpn) {
  return static_cast<std::uint16_t>(qpn >> index_bits);
}

using clock = std::chrono::steady_clock;

/// An ack (`nak` none) or NAK that no queue pair is there to send any more.
struct stray_answer {
  link* to = nullptr;  ///< null: nothing
  std::uint32_t generation = 0;
  std::uint32_t requester = 0;
  std::uint32_t psn = 0;
  nak_code nak = nak_code::none;
};
inline constexpr std::size_t strays_max = 2;  ///< requesters of one QP number that is not there

/// A QP number's place. Type-stable: its locks outlive the queue pairs that come and go in it.
struct alignas(64) qp_slot {
  std::mutex send;                                ///< the send queue and its requester
  std::mutex receive;                             ///< the responder and the receive queue
  queue_pair* qp = nullptr;                       ///< changes only under both
  std::array<stray_answer, strays_max> strays{};  ///< under `receive`
  /// How far completions of this slot's send queue were polled; grows for ever, across queue pairs.
  std::atomic<std::uint64_t> released{0};
  // Of node::kick and node::wake_at, under the node's list lock:
  bool kicked = false;
  clock::time_point deadline = clock::time_point::max();
};

/// This process as an adapter: made by the first open of soft0, gone with the last close.
class node {
 public:
  /// The process's node, made if need be; counted. Throws std::system_error (no slot, no
  /// descriptors).
  static node& acquire();
  static void release(node&);  ///< the last one joins the engine and closes doors and links

  [[nodiscard]] std::uint16_t slot() const noexcept;
  [[nodiscard]] key_table& keys() noexcept;
  /// True in a child of the process that made it: its objects answer EIO and touch nothing.
  [[nodiscard]] bool abandoned() const noexcept;

  // ---- QP numbers
  std::uint32_t allocate_qpn();  ///< 0 when there is none (0 and 1 are never given out)
  void free_qpn(std::uint32_t qpn) noexcept;
  /// Null when the number is not of this node.
  [[nodiscard]] qp_slot* find(std::uint32_t qpn) noexcept;

  // ---- progress
  /// Have `run(qpn)` called soon, by a poller or the engine. Callable under any lock but the
  /// list's.
  void kick(std::uint32_t qpn) noexcept;
  /// The same at a time; one deadline per QP, the earlier one wins. time_point::max() forgets it.
  void wake_at(std::uint32_t qpn, clock::time_point when) noexcept;
  /// Does what can be done now: kicks, due timers, frames that came, answers that found no room.
  /// Holds no lock when called. True when it did anything.
  bool progress() noexcept;
  void on_empty_poll(
      completion_queue& cq) noexcept;          ///< counts, takes over from the engine, progress()
  void on_arm(completion_queue& cq) noexcept;  ///< gives back to the engine, progress()

  // ---- other processes
  /// Where a GID leads: host all zero when it is one of ours.
  [[nodiscard]] node_address resolve(const union ibv_gid& gid, std::uint32_t qpn) const noexcept;
  [[nodiscard]] bool is_here(const node_address&) const noexcept;  ///< this very process
  /// The link we opened to that process, opened now if need be; null when nobody is there (or no
  /// link is left). Control path, and the data path after a link went down. Never blocks.
  link* link_to(const node_address&) noexcept;
};

}  // namespace softverbs
