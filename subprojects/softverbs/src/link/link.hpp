#pragma once

#include "link/engine_protocol.hpp"
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
#include <mutex>

namespace softverbs {

class node;

/// Where a QP lives: which host, which process on it.
struct node_address {
  in6_addr host{};  ///< all zero: this host
  std::uint16_t slot = 0;
  friend bool operator==(const node_address&, const node_address&) noexcept;
};

enum class sent : std::uint8_t {
  yes,
  full,  ///< no room now: the QP was put on the link's waiting list and will be kicked
  down,  ///< no such process, or it is gone
};

/// The most frames and bytes that one call of link::serve takes; it sends about as many bytes of
/// READs. A long message then delays a short one on another link by some 5 us.
inline constexpr std::size_t batch_frames_max = bound(64, 4);
inline constexpr std::size_t batch_bytes_max = bound(128 * 1024, 1024);
/// A poller looks at a TCP socket once in so many looks: a system call costs more than a ring.
inline constexpr std::uint32_t tcp_look_every = 16;

/// The route to one other process. One that we opened carries our requests out and their answers
/// in; one that we accepted, the reverse: a pair of processes that talk both ways has two.
/// Type-stable: a link that died is used again for another peer, under a new `generation`.
class link {
 public:
  /// Reserves room for one frame, so that its payload can be copied straight into the ring; the
  /// frame is sent by commit(). Holds the link's tx lock in between. `waiter` is the local QP
  /// number to kick on `full`; 0 for nobody (send_answers, which is called again anyway).
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

  /// Responder side, under `rx`: this QP has acks or answers to send once the batch was drained.
  void answer_later(std::uint32_t local_qpn) noexcept;

  // ---- What follows is for the node.

  enum class state : std::uint8_t { free, up, dying };
  struct setup {
    node_address peer;
    unique_fd socket;
    unique_fd memory;  ///< the shared file; none for TCP
    bool opened;       ///< by us, not accepted
    std::uint16_t own_slot;
  };

  explicit link(engine_protocol& protocol) noexcept : protocol_{protocol} {}

  /// Makes a free link the route to a peer. False: busy, or no memory; the link stays free.
  [[nodiscard]] bool start(setup& how) noexcept;
  /// Puts these bytes (a hello, frame_align long) ahead of all frames. TCP, right after start().
  void send_first(const void* line) noexcept;
  /// The end of a link: `waiters` are the QPs to kick. Takes both locks; holds `directory` while
  /// the descriptor closes, since a fork may be going on.
  void stop(step_mutex& directory, index_set& waiters) noexcept;
  /// Of a link that was accepted: the one that we opened to the same peer. Any that is not up will
  /// do as none.
  void set_answers(link* opened) noexcept { answers_.store(opened); }
  void set_free() noexcept { state_.store(state::free, std::memory_order_release); }

  [[nodiscard]] state current() const noexcept { return state_.load(std::memory_order_acquire); }
  [[nodiscard]] bool opened() const noexcept { return opened_; }
  [[nodiscard]] bool is_tcp() const noexcept { return tcp_.load(std::memory_order_relaxed); }
  /// TCP: for how long the peer's host has owed us an acknowledgement; zero when it owes none.
  [[nodiscard]] std::chrono::milliseconds silence() noexcept;
  [[nodiscard]] int socket() const noexcept { return socket_.get(); }
  void abandon() noexcept { socket_.reset(); }  ///< in the child of a fork

  /// A quick look, without a lock: whether serve() would find something.
  [[nodiscard]] bool has_work() noexcept;
  /// Takes a batch of frames and sends the answers that are due. True when it did anything. With
  /// `wait` it waits for another thread that is in here; without, it leaves the work to that one.
  /// Whoever leaves with more to do tells the engine.
  bool serve(node& local_node, bool wait) noexcept;
  /// Those who wait for room, once it is worth it.
  [[nodiscard]] bool stalled() const noexcept { return stalled_.load(); }
  [[nodiscard]] bool relieve(index_set& waiters) noexcept;
  void want_doorbells(bool wanted) noexcept;

  /// Engine: the socket is readable. False: the peer has gone.
  [[nodiscard]] bool hear_doorbells() noexcept;
  void on_readable() noexcept { unread_.store(true); }  ///< TCP
  void on_writable() noexcept;                          ///< TCP

 private:
  /// Whether there is more to do that no event of this link's socket will tell of.
  [[nodiscard]] bool has_left() const noexcept;
  bool serve_locked(node& local_node) noexcept;
  bool drain(node& local_node) noexcept;
  enum class frame_fate : std::uint8_t { taken, waits, broken };
  frame_fate take_frame(node& local_node) noexcept;
  void take_answers(node& local_node) noexcept;
  void take_short_answers(node& local_node) noexcept;
  [[nodiscard]] bool long_read_is_next() noexcept;
  bool answer(node& local_node) noexcept;
  void fill_from_socket() noexcept;
  void flush_to_socket() noexcept;
  void ring_doorbell() noexcept;
  void fail() noexcept;

  // Changed only while the link is not up, with both locks held.
  engine_protocol& protocol_;
  std::atomic<state> state_{state::free};
  std::atomic<std::uint32_t> generation_{0};
  bool opened_ = false;
  std::atomic<bool> tcp_{false};
  std::uint16_t own_slot_ = 0;
  node_address peer_;
  unique_fd socket_;
  ring_memory memory_;
  std::atomic<link*> answers_{nullptr};

  // Under `rx`.
  alignas(64) step_mutex rx_;
  ring_consumer in_;
  stream_writer from_socket_;
  bool ended_ = false;                        ///< TCP: no more bytes will come
  step_atomic<bool> unread_{false};           ///< TCP: the socket may have bytes
  std::atomic<std::uint32_t> looks_{0};       ///< TCP: of pollers
  step_atomic<bool> answers_stalled_{false};  ///< `due_` waits for room
  step_atomic<bool> quantum_ended_{false};    ///< `due_` waits for its next quantum, not for room
  std::uint32_t due_cursor_ = 0;
  index_set due_;  ///< QPs with answers to send

  // Under `tx`.
  alignas(64) adaptive_mutex tx_;
  ring_producer out_;
  stream_reader to_socket_;
  std::size_t reserved_bytes_ = 0;
  std::chrono::steady_clock::time_point started_{};
  step_atomic<bool> stalled_{false};  ///< somebody found no room
  index_set waiters_;
};

}  // namespace softverbs
