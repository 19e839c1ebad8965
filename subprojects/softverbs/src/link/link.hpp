#pragma once

#include "link/engine_protocol.hpp"
#include "link/paired_rings.hpp"
#include "link/unique_fd.hpp"
#include "queue/adaptive_mutex.hpp"
#include "wire/frame.hpp"
#include "wire/index_set.hpp"
#include "wire/ring.hpp"
#include "wire/step.hpp"

#include <netinet/in.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>

namespace softverbs {

class link;
class node;

/// The network of a simulation, as a link sees it.
class simulated_network {
 public:
  /// The link is up.
  virtual void on_start(link& one) noexcept = 0;
  /// The link has sent a frame, which the peer does not see before its `link::arrive`.
  virtual void on_sent(link& by, const frame_header& header) noexcept = 0;
  /// The peer's end has work: frames were delivered, or there is space again.
  virtual void on_peer_work(link& of) noexcept = 0;
  /// This end has failed or was closed.
  virtual void on_end(link& one) noexcept = 0;

 protected:
  ~simulated_network() = default;
};

/// The address of a node: the host, and the process on that host.
struct node_address {
  in6_addr host{};         ///< all zero: this host
  std::uint16_t slot = 0;  ///< relay_slot() of a slot: the second route to that process
  friend bool operator==(const node_address&, const node_address&) noexcept;
};

/// The slot of the second route to a process of this host, which carries what XRC passes on. What
/// it carries never waits for what requests wait for.
constexpr std::uint16_t relay_slot(std::uint16_t slot) {
  return static_cast<std::uint16_t>(slot | 0x8000u);
}
constexpr bool is_relay(std::uint16_t slot) { return (slot & 0x8000u) != 0; }
constexpr std::uint16_t process_slot(std::uint16_t slot) {
  return static_cast<std::uint16_t>(slot & 0x7fffu);
}

enum class sent : std::uint8_t {
  yes,
  full,  ///< no space: the QP joined the waiting list of the link and will be kicked
  down,  ///< the process does not exist (any more)
};

/// The most frames and bytes that one call of link::serve takes; it sends about as many bytes of
/// READs. A long message then delays a short one on another link by some 5 us.
inline constexpr std::size_t batch_frames_max = bound(64, 4);
inline constexpr std::size_t batch_bytes_max = bound(128 * 1024, 1024);
/// A poller reads a TCP socket once in this many polls: a system call costs more than a ring.
inline constexpr std::uint32_t tcp_poll_interval = 16;

/// The route to one other process. An opened link carries our requests and their answers; an
/// accepted link carries the requests of the peer and our answers.
///
/// | state   | meaning                                | moved here by                          |
/// | ------- | -------------------------------------- | -------------------------------------- |
/// | free    | no peer; start() may use the link      | the engine, once no thread uses it     |
/// | up      | frames flow                            | start(): link_to() or an accepted peer |
/// | closing | the socket is shut down, nothing sends | fail(): any thread; stop(): the engine |
///
/// Type-stable: a free link is used again for another peer, under a new `generation`.
class link {
 public:
  /// Reserves space for one frame, so that the caller copies the payload straight into the ring.
  /// commit() sends the frame; the tx lock is held until then. On `full`, the QP with the local
  /// number `waiter` is kicked later; 0: none.
  struct frame_room {
    sent result;
    std::byte* payload;
  };
  frame_room reserve(const frame_header& header, std::uint32_t waiter) noexcept;
  void commit() noexcept;
  void cancel() noexcept;  ///< instead of commit(): nothing is sent

  [[nodiscard]] const node_address& peer() const noexcept { return peer_; }
  [[nodiscard]] std::uint32_t generation() const noexcept {
    return generation_.load(std::memory_order_acquire);
  }
  [[nodiscard]] bool up() const noexcept {
    return state_.load(std::memory_order_acquire) == state::up;
  }

  /// Responder side, under `rx`: this QP has acks or answers to send after the batch.
  void answer_later(std::uint32_t local_qpn) noexcept;

  // ---- for the node only

  enum class state : std::uint8_t { free, up, closing };
  struct setup {
    node_address peer;
    unique_fd socket;
    unique_fd memory;  ///< the shared file; none for TCP, and in a simulation
    bool opened;       ///< true: this process opened it; false: it was accepted
    std::uint16_t own_slot;
    bool for_member = false;                ///< opened for a group's member on another host
    simulated_network* network = nullptr;   ///< in place of the socket
    std::shared_ptr<paired_rings> rings{};  ///< in place of the file, with a simulated network
  };

  explicit link(engine_protocol& protocol) noexcept : protocol_{protocol} {}

  /// Makes a free link the route to a peer. False: a poller still uses the link, or memory is
  /// short; the link stays free.
  [[nodiscard]] bool start(setup& how) noexcept;
  /// Sends a hello (frame_align bytes) ahead of all frames. TCP only; call right after start().
  void send_first(const void* line) noexcept;
  /// Ends a link and returns the QPs to kick in `waiters`. Takes both locks. Holds `directory`
  /// while the descriptor closes, because another thread may fork.
  void stop(step_mutex& directory, index_set& waiters) noexcept;
  /// For an accepted link: sets the link that we opened to the same peer. A link that is not up
  /// counts as none.
  void set_answers(link* opened) noexcept { answers_.store(opened); }
  void set_free() noexcept { state_.store(state::free, std::memory_order_release); }

  [[nodiscard]] state current() const noexcept { return state_.load(std::memory_order_acquire); }
  [[nodiscard]] bool opened() const noexcept { return opened_; }
  [[nodiscard]] bool for_member() const noexcept { return for_member_; }
  [[nodiscard]] bool is_tcp() const noexcept { return tcp_.load(std::memory_order_relaxed); }
  [[nodiscard]] bool is_simulated() const noexcept { return network_ != nullptr; }
  /// TCP: how long the peer's host has not acknowledged our bytes; zero if nothing is
  /// unacknowledged. A simulation: how long no frame of the peer has arrived.
  [[nodiscard]] std::chrono::nanoseconds silent_for() noexcept;
  [[nodiscard]] int socket() const noexcept { return socket_.get(); }
  void abandon() noexcept { socket_.reset(); }  ///< in the child of a fork

  /// True if serve() would find work. Takes no lock.
  [[nodiscard]] bool has_work() noexcept;
  /// Takes a batch of frames and sends the answers that are due. True if anything was done. If
  /// another thread serves the link, the call waits for it (`wait`) or leaves the work to it. A
  /// thread that leaves more work behind notifies the engine.
  bool serve(node& local_node, bool wait) noexcept;
  /// True if QPs wait for space; take_waiters() returns them once enough is free.
  [[nodiscard]] bool stalled() const noexcept { return stalled_.load(); }
  [[nodiscard]] bool take_waiters(index_set& waiters) noexcept;
  void want_doorbells(bool wanted) noexcept;

  /// Engine: takes the doorbells of a readable socket. False: the peer has gone.
  [[nodiscard]] bool drain_doorbells() noexcept;
  void on_readable() noexcept { unread_.store(true); }  ///< TCP
  void on_writable() noexcept;                          ///< TCP

  // ---- simulated links. \thread the simulation's
  /// The next frame of the peer has arrived, or was lost.
  void arrive(bool is_lost) noexcept;
  /// The oldest frame of the peer that has not arrived; there is one.
  [[nodiscard]] const frame_header& next_to_arrive() const noexcept;
  /// A datagram of the peer arrives beside the others, and is taken.
  void take_datagram(node& local_node, const frame_header& header,
                     const std::byte* payload) noexcept;
  /// True if take_next() would find a frame for which there is room.
  [[nodiscard]] bool has_frame_to_take() const noexcept {
    return in_.has_frames() && (!lacks_room_ || out_.has_space());
  }
  /// Takes one frame: an answer that goes ahead of the requests, if there is one.
  void take_next(node& local_node) noexcept;
  /// True if answers are due, and there is room for some.
  [[nodiscard]] bool has_answers_due() const noexcept {
    return quantum_ended_.load() || (answers_stalled_.load() && out_.has_space());
  }
  /// Sends a quantum of the answers that one queue pair owes.
  void answer_next(node& local_node) noexcept;
  /// The peer has vanished without a word: new requests need another link.
  void set_deserted() noexcept { is_deserted_ = true; }
  [[nodiscard]] bool is_deserted() const noexcept { return is_deserted_; }
  /// True if QPs wait for space and there is enough.
  [[nodiscard]] bool has_space_for_waiters() const noexcept {
    return stalled_.load() && out_.has_space();
  }
  /// True if one of these has something to do.
  [[nodiscard]] bool has_step() const noexcept {
    return has_frame_to_take() || has_answers_due() || has_space_for_waiters();
  }

 private:
  /// True if work is left that no event of the socket will announce.
  [[nodiscard]] bool has_more() const noexcept;
  [[nodiscard]] bool take_rings(setup& how) noexcept;
  bool serve_locked(node& local_node) noexcept;
  bool drain(node& local_node) noexcept;
  enum class frame_fate : std::uint8_t { taken, waits, broken };
  frame_fate take_frame(node& local_node) noexcept;
  void take_answers(node& local_node) noexcept;
  bool take_answer_ahead(node& local_node) noexcept;
  void take_short_answers(node& local_node) noexcept;
  [[nodiscard]] bool long_read_is_next() noexcept;
  bool answer(node& local_node, std::uint32_t most = indices_max) noexcept;
  void fill_from_socket() noexcept;
  void flush_to_socket() noexcept;
  void ring_doorbell() noexcept;
  void fail() noexcept;

  // Changed only while the link is not up, with both locks held.
  engine_protocol& protocol_;
  std::atomic<state> state_{state::free};
  std::atomic<std::uint32_t> generation_{0};
  bool opened_ = false;
  bool for_member_ = false;
  std::atomic<bool> tcp_{false};
  std::uint16_t own_slot_ = 0;
  node_address peer_;
  unique_fd socket_;
  simulated_network* network_ = nullptr;
  ring_memory memory_;
  std::shared_ptr<paired_rings> rings_;
  std::atomic<link*> answers_{nullptr};

  // Under `rx`.
  alignas(64) step_mutex rx_;
  ring_consumer in_;
  stream_writer from_socket_;
  bool ended_ = false;                        ///< TCP: the peer will send no more bytes
  step_atomic<bool> unread_{false};           ///< TCP: the socket may have bytes
  std::atomic<std::uint32_t> tcp_polls_{0};   ///< TCP: by pollers
  step_atomic<bool> answers_stalled_{false};  ///< `due_` waits for room
  step_atomic<bool> quantum_ended_{false};    ///< `due_` waits for its next quantum, not for room
  std::uint32_t due_cursor_ = 0;
  index_set due_;  ///< QPs with answers to send
  // A simulation's.
  bool lacks_room_ = false;  ///< the next frame needs room for an answer
  bool is_deserted_ = false;
  clock::time_point heard_at_{};  ///< when the last frame of the peer arrived

  // Under `tx`.
  alignas(64) adaptive_mutex tx_;
  ring_producer out_;
  stream_reader to_socket_;
  std::size_t reserved_bytes_ = 0;
  clock::time_point started_{};
  step_atomic<bool> stalled_{false};  ///< a QP found no space
  index_set waiters_;
};

}  // namespace softverbs
