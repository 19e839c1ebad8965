#pragma once

#include "link/engine_protocol.hpp"
#include "link/link.hpp"
#include "link/listeners.hpp"
#include "memory/key_table.hpp"
#include "node/deadline_heap.hpp"
#include "node/object_counts.hpp"
#include "node/service.hpp"
#include "node/simulation.hpp"
#include "queue/adaptive_mutex.hpp"

#include <infiniband/verbs.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace softverbs {

/// True if entry points must check for faults, a fork or a simulation (abi/entry.hpp). The node
/// sets the flag in a forked child.
namespace entry {
extern std::atomic<bool> needs_checks;
}

class fork_mutex;
class group_membership;
struct queue_pair;
struct completion_queue;

inline constexpr std::uint32_t slot_bits = 10;   ///< bits of the slot: processes of a host
inline constexpr std::uint32_t index_bits = 14;  ///< bits of the index: QPs of a process
inline constexpr std::uint32_t index_mask = (1u << index_bits) - 1;
inline constexpr std::uint32_t index_max = index_mask - 1;  ///< the number 0xffffff means a group
static_assert(process_slots == 1u << slot_bits && indices_max == 1u << index_bits);

inline constexpr std::uint32_t key_slots = 1u << 17;  ///< MRs and windows of a process
inline constexpr std::uint32_t links_each_max = 512;  ///< limit of a process, in each direction
inline constexpr std::uint32_t links_max = 2 * links_each_max;
inline constexpr std::uint32_t links_per_host_max = 256;  ///< accepted from one host
/// A process that announces itself as a member gets a link. Members on other hosts thus have a
/// share of the opened links: for all groups together, and for those of one host.
inline constexpr std::uint32_t member_links_max = 128;
inline constexpr std::uint32_t member_links_per_host_max = 32;
inline constexpr std::uint32_t services_max = 4;

constexpr std::uint16_t slot_of(std::uint32_t qpn) {
  return static_cast<std::uint16_t>(qpn >> index_bits);
}

/// An ack (`nak` is none) or a NAK whose queue pair was reset or destroyed.
struct orphaned_answer {
  link* to = nullptr;
  std::uint32_t generation = 0;
  std::uint32_t requester = 0;
  std::uint32_t epoch = 0;
  std::uint32_t psn = 0;
  nak_code nak = nak_code::none;
};

/// The next piece that a responder expects.
struct expected_message {
  std::uint32_t psn = 0;
  std::uint32_t offset = 0;  ///< the bytes taken of the message in progress
  std::uint32_t message_bytes = 0;
  frame_kind kind{};  ///< kind of the message in progress
  bool in_message = false;
  bool waits_for_resend = false;  ///< after a NAK: requests after its PSN are dropped silently
  bool established = false;       ///< IBV_EVENT_COMM_EST was raised
};

/// The slot of a QP number. Type-stable: the locks outlive the queue pairs of the slot. A sender
/// uses the first cache line and a receiver the second, because they may be two threads.
struct alignas(64) qp_slot {
  adaptive_mutex send;  ///< the send queue and its requester
  /// End of the send WQEs whose CQEs were polled. Grows for ever, across the queue pairs of the
  /// slot.
  std::atomic<std::uint64_t> released{0};
  std::atomic<std::uint32_t> changes{0};  ///< changes of the QP that wait for `send` or hold it
  bool kicked = false;                    ///< on the node's list; under the lock of the list

  alignas(64) adaptive_mutex receive;    ///< the responder and the receive queue
  std::atomic<queue_pair*> qp{nullptr};  ///< written under both locks
  expected_message expected;             ///< under `receive`

  alignas(64) std::vector<orphaned_answer> orphans;  ///< under `receive`
};

/// The process as an adapter. A node works from the first open of soft0 to the last close; the
/// object is kept for the next open.
class node final : private engine_world {
 public:
  /// Returns the node of the process, and counts the user; the first one starts it. \errors
  /// std::system_error (no slot, no descriptors).
  static node& acquire();
  static void release(node&);  ///< the last user joins the engine and closes listeners and links
#ifdef SOFTVERBS_EXPLORE
  static void begin_another() noexcept;  ///< the next acquire() makes a node beside this one
  void nudge() noexcept { wake_engine(); }
#endif

  [[nodiscard]] std::uint16_t slot() const noexcept { return slot_; }
  [[nodiscard]] key_table& keys() noexcept { return keys_; }
  /// True in a child of the process that made the node: its objects answer EIO and touch nothing.
  [[nodiscard]] bool abandoned() const noexcept {
    return abandoned_.load(std::memory_order_relaxed);
  }

  [[nodiscard]] object_counts& counts() noexcept { return counts_; }

  // ---- QP numbers
  std::uint32_t allocate_qpn();  ///< 0 when there is none (0 and 1 are never given out)
  void free_qpn(std::uint32_t qpn) noexcept;
  /// A new epoch for a connection of an RC queue pair. The epoch separates the connection's frames
  /// from those of earlier connections of the same two queue pairs.
  [[nodiscard]] std::uint32_t next_epoch() noexcept { return epochs_.fetch_add(1) + 1; }
  /// The slot of a QP number; null if the number belongs to another node.
  [[nodiscard]] qp_slot* find(std::uint32_t qpn) noexcept;

  // ---- progress
  /// Makes a poller or the engine call run(qpn) soon. Callable under any lock except that of the
  /// list.
  void kick(std::uint32_t qpn) noexcept;
  /// Makes a poller or the engine call run(qpn) at `when`. A QP has one deadline: the earlier one
  /// wins. time_point::max() cancels it.
  void wake_at(std::uint32_t qpn, clock::time_point when) noexcept;
  /// Does all work that is ready: kicks, due timers, frames, and answers that found no room. True
  /// if there was any. Call without a lock.
  bool progress() noexcept { return work(false); }
  void on_empty_poll(
      completion_queue& cq) noexcept;          ///< counts, takes over from the engine, progress()
  void on_arm(completion_queue& cq) noexcept;  ///< gives back to the engine, progress()

  /// The multicast groups of this process (multicast/membership.hpp); null until the first use.
  [[nodiscard]] group_membership* groups() const noexcept {
    return groups_.load(std::memory_order_acquire);
  }
  void set_groups(group_membership& only) noexcept {
    groups_.store(&only, std::memory_order_release);
  }

  // ---- the port's counters
  /// Counts a datagram whose Q_Key is not that of its queue pair.
  void count_qkey_violation() noexcept {
    if (qkey_violations() != qkey_violations_max)
      qkey_violations_.fetch_add(1, std::memory_order_relaxed);
  }
  /// The count, which ends at its largest value (IBTA 14.2.5.6).
  [[nodiscard]] std::uint16_t qkey_violations() const noexcept {
    return static_cast<std::uint16_t>(
        std::min(qkey_violations_.load(std::memory_order_relaxed), qkey_violations_max));
  }

  // ---- a simulated node: steps in place of the engine's work (node/simulation.hpp)
  [[nodiscard]] simulated_host* simulated() const noexcept { return simulated_; }
  [[nodiscard]] bool has_kicks() const noexcept { return kicked_count_.load() != 0; }
  /// Runs the queue pair that was kicked first, if there is one.
  bool run_next_kick() noexcept;
  [[nodiscard]] clock::time_point next_deadline() const noexcept {
    return clock::time_point{clock::duration{next_deadline_.load()}};
  }
  /// Runs the queue pair whose deadline came first, if one has come by `now`.
  bool run_next_due(clock::time_point now) noexcept;
  [[nodiscard]] std::uint32_t link_count() const noexcept { return live_count_.load(); }
  [[nodiscard]] link& link_at(std::uint32_t n) const noexcept { return *live_[n].load(); }
  /// Runs the queue pairs that waited for room on a link, if there is enough.
  bool wake_waiters(link& one) noexcept;
  /// Takes what is left, and closes the link: the peer has gone.
  void finish(link& one) noexcept;
  /// The process is gone: its links end, and it opens no more.
  void die() noexcept;
  [[nodiscard]] bool is_open() const noexcept { return users_ != 0; }
  /// Makes this side's end of a route that `from` opens. Null: there is no room.
  link* accept_simulated(const node_address& from, std::shared_ptr<paired_rings> rings) noexcept;

  // ---- services
  /// From now on, the engine serves `one`, until detach(). The caller is a user of the node
  /// meanwhile. False: services_max are attached, or the system lacks memory.
  [[nodiscard]] bool attach(node_service& one) noexcept;
  /// Returns when the engine has left `one` and will not call it again. \thread any but the
  /// engine; holds no lock that run() takes. In a forked child, does nothing.
  void detach(node_service& one) noexcept;
  /// Makes the engine read all services' deadlines again. \thread any, under any lock.
  void wake_service() noexcept { wake_engine(); }

  // ---- other processes
  /// The node address of a GID; the host is all zero if the GID is one of ours. Control path: the
  /// call may ask the system.
  [[nodiscard]] node_address resolve(const union ibv_gid& gid, std::uint32_t qpn) const noexcept;
  [[nodiscard]] bool is_local(const node_address&) const noexcept;  ///< true for this process
  /// The link to that process; opens one if there is none. Null if the process does not exist or no
  /// link is free. Used by the control path, and by the data path after a link went down. Never
  /// blocks.
  link* link_to(const node_address&) noexcept;
  /// The link to a process that is a member of a multicast group, as link_to() finds one. Null also
  /// if the links to members on other hosts have reached their share.
  link* link_to_member(const node_address&) noexcept;

 private:
  static constexpr std::uint32_t chunk_slots = 256;
  static constexpr std::uint32_t qkey_violations_max = 0xffff;

  explicit node(std::uint32_t first_index, simulated_host* host = nullptr);
  ~node();
  friend class simulated_host;
  void start();  ///< throws std::system_error
  void stop() noexcept;
  void stop_links() noexcept;

  [[nodiscard]] bool make_chunk(std::uint32_t index) noexcept;

  static const fork_mutex leaf;
  static const int fork_handlers;  ///< 0, or the error of pthread_atfork
  static void before_fork() noexcept;
  static void after_fork() noexcept;
  static void in_child() noexcept;

  // node.cpp: progress
  bool work(bool wait) noexcept override;
  bool run_kicked() noexcept;
  bool run_due() noexcept;
  bool serve_link(link& one, bool wait) noexcept;
  /// True if a poller has work to take over. Without links and kicks, posts do all the work.
  [[nodiscard]] bool has_work_to_take() const noexcept {
    return live_count_.load(std::memory_order_relaxed) != 0 ||
           kicked_count_.load(std::memory_order_relaxed) != 0;
  }

  // engine.cpp
  void engine() noexcept;
  void wait(std::chrono::nanoseconds limit) noexcept override;
  void yield() noexcept override;
  clock::time_point now() noexcept override;
  void wake_engine() noexcept override;
  void want_doorbells(bool wanted) noexcept override;
  void set_timer() noexcept;
  void handle_events(std::chrono::nanoseconds timeout) noexcept;
  void handle_link(event_tag tag, std::uint32_t events) noexcept;

  // services.cpp
  struct attached {
    step_mutex busy;  ///< held by the engine while it is in the service
    std::atomic<node_service*> service{nullptr};
  };
  void serve(attached& one, bool is_ready) noexcept;
  void serve_due() noexcept;
  [[nodiscard]] clock::time_point next_service() noexcept;
  void abandon_services() noexcept;

  // links.cpp
  link* find_link(const node_address& to) noexcept;
  link* open_link(const node_address& to, bool for_member) noexcept;
  link* start_link(link::setup how) noexcept;
  void pair_up(link& one, std::uint32_t count) noexcept;
  bool connect(const node_address& to, link::setup& how) noexcept;
  void accept(accepted_peer&& accepted) noexcept;
  bool has_room_for(const node_address& peer) noexcept;
  bool has_room_for_member(const in6_addr& host) noexcept;
  void close(link& one) noexcept;
  void kick_all(const index_set& waiters) noexcept;

  simulated_host* const simulated_;  ///< null: this node is real
  // Set by start(), read by all threads.
  std::uint16_t slot_ = 0;
  bool tcp_forced_ = false;
  tcp_settings tcp_;
  std::atomic<bool> abandoned_{false};
  key_table keys_;
  std::array<std::atomic<qp_slot*>, indices_max / chunk_slots> chunks_{};

  // The links that are not free. Read without a lock.
  std::atomic<std::uint32_t> live_count_{0};
  std::array<std::atomic<link*>, links_max> live_{};

  // Read by each poll; seldom written.
  alignas(64) step_atomic<std::uint32_t> kicked_count_{0};
  step_atomic<clock::rep> next_deadline_{clock::time_point::max().time_since_epoch().count()};
  engine_protocol protocol_{*this};

  // Kicks and timers.
  alignas(64) adaptive_mutex list_;
  std::vector<std::uint16_t> kicked_;  ///< a ring of indices_max indices
  std::uint32_t kicked_first_ = 0;
  deadline_heap deadlines_;

  std::atomic<std::uint32_t> epochs_{0};
  std::atomic<std::uint32_t> qkey_violations_{0};  ///< more than the most by racing threads
  std::atomic<group_membership*> groups_{nullptr};
  object_counts counts_;

  // QP numbers.
  std::mutex numbers_;
  index_set free_indices_;
  std::uint32_t next_index_ = 0;

  // Links and listeners.
  step_mutex directory_;
  std::array<std::unique_ptr<link>, links_max> links_;
  listeners listeners_;

  std::array<attached, services_max> services_;

  // Used by the engine only.
  clock::time_point timer_set_ = clock::time_point::max();
  unique_fd epoll_;
  unique_fd wake_;
  unique_fd timer_;
  unique_fd lid_claim_;  ///< claim of an InfiniBand port's LID
  std::thread thread_;
  std::uint32_t users_ = 0;  ///< under `process_lock`
};

}  // namespace softverbs
