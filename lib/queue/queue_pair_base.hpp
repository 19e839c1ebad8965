#pragma once

#include "completion_queue_driver.hpp"
#include "message_handler.hpp"
#include "receive_queue.hpp"

#include <cordma/coro/event.hpp>
#include <cordma/detail/queue/send_operation.hpp>
#include <cordma/queue/shared_receives.hpp>
#include <cordma/queue/transfer_counters.hpp>
#include <cordma/verbs/queue_pair.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <memory_resource>
#include <span>

namespace cordma {

/// The one way to post on a reliable-connection queue pair. Every request gets a slot, and whoever
/// owns the slot is told of the end: a `send_operation` by its waiter, a `message_handler` by a
/// call. `queue_pair` adds what is awaited. Setup and states are the queue pair's `verbs()`.
/// Operations in progress, and handles, may outlive it.
/// Thread: the executor's.
class queue_pair_base {
 public:
  /// A queue pair in RESET, whose requests are awaited, or a handler's from `hand_messages_to` on.
  /// \param message_max_bytes  the port's limit (`port_info::message_max_bytes`).
  /// \param pool  where it takes its receives from, which outlives it: its messages are for a
  ///   `message_handler` only, and `wanted` says nothing about receives. It must not be destroyed
  ///   in the middle of a reap, and its end reaps once itself, in manual mode, too.
  /// \errors  what `verbs::queue_pair` throws; errc::limit_exceeded when the completion queue has
  ///   no room for all that this one can have outstanding, or the pool no buffers for it;
  ///   errc::wrong_protection_domain: the pool's is not `pd`.
  queue_pair_base(completion_queue_driver& driver, verbs::protection_domain& pd,
                  const verbs::queue_pair_capabilities& wanted, std::size_t message_max_bytes,
                  shared_receives* pool = nullptr);
  /// A queue pair for `handler` alone, which sends by `post_detached` and no atomics. Receives are
  /// counted as `receives`, and the request that flushes a broken queue pair as `sends`.
  queue_pair_base(completion_queue_driver& driver, verbs::protection_domain& pd,
                  const verbs::queue_pair_capabilities& wanted, message_handler& handler,
                  request_kind sends, request_kind receives);
  queue_pair_base(const queue_pair_base&) = delete;
  queue_pair_base& operator=(const queue_pair_base&) = delete;
  /// Operations that still wait end with `errc::closed`. The memory in flight is released after
  /// `ibv_destroy_qp` has returned. One bounded system call; waits for no peer and no completion.
  ~queue_pair_base();

  /// Ends everything that waits with `why`, refuses what comes, and puts the queue pair in ERROR,
  /// so that the device gives back what it has. Idempotent: the first reason stays.
  void abort(const request_outcome& why) noexcept;
  /// Why it no longer works; none while it does.
  [[nodiscard]] const request_outcome& failure_reason() const noexcept { return reason_; }
  [[nodiscard]] bool has_failed() const noexcept { return bool(reason_.code); }
  /// Set once it no longer works. To be waited for in tasks: a coroutine without a scheduler would
  /// be resumed in the middle of a reap.
  [[nodiscard]] event& failed_event() noexcept { return failed_; }
  /// Set once it no longer works and the device has none of its requests. That is never, when the
  /// completion queue lost entries: wait with a deadline.
  [[nodiscard]] event& drained_event() noexcept { return drained_; }
  /// Waits until everything posted to send has ended, or the queue pair no longer works. One that
  /// was posted unsignaled ends with a later one only.
  event::wait_op sends_idle() noexcept;

  /// The last `slots` of the send queue are for urgent requests. Before anything is posted.
  void reserve_sends(std::uint32_t slots) noexcept;
  void post_recv(const local_mr_slice& buffer) { receives_.post({&buffer, 1}); }
  void post_recv(std::span<const local_mr_slice> buffer) { receives_.post(buffer); }

  /// Gives all receives to `handler`, before any is posted. From then on operations that want a
  /// message end with errc::refused, as do those that would take a receive of the peer's: SENDs,
  /// and WRITEs with immediate data. `post_detached` is the handler's.
  void hand_messages_to(message_handler& handler) noexcept;
  /// Posts the handler's receives, at least one, with one doorbell: the handler has chosen their
  /// numbers, which are in `wr_id`. In INIT or later. Not with a pool.
  void post_recvs(std::span<ibv_recv_wr> wrs) noexcept;
  /// The handler's receives that the device has. Not those of a pool.
  [[nodiscard]] std::uint32_t posted_recvs() const noexcept { return handled_receives_; }
  /// True if there is room for so many requests of `post_detached`.
  [[nodiscard]] bool can_post_detached(std::size_t count = 1) const noexcept;
  /// Posts requests that nobody awaits, ahead of all that waits for room. False: there is no room
  /// for them. What the device refuses breaks the queue pair.
  [[nodiscard]] bool post_detached(const wr_list& list) noexcept;

  [[nodiscard]] send_queue& sends() noexcept { return *sends_; }
  [[nodiscard]] const send_queue& sends() const noexcept { return *sends_; }
  [[nodiscard]] receive_queue& receives() noexcept { return receives_; }
  [[nodiscard]] const receive_queue& receives() const noexcept { return receives_; }
  /// Requests that the device has, or that wait for their doorbell.
  [[nodiscard]] std::uint32_t slots_in_use() const noexcept;

  /// The part of the pool that serves this queue pair. Null: the receives are the queue pair's own.
  [[nodiscard]] receive_share* share() noexcept { return share_.get(); }
  /// The device says that it takes no more of the pool's receives (IBV_EVENT_QP_LAST_WQE_REACHED),
  /// for `why`.
  void last_receive_taken(const request_outcome& why) noexcept;
  /// Set once the device takes no more of the pool's receives.
  [[nodiscard]] event& last_receive_event() noexcept { return last_receive_; }

  [[nodiscard]] verbs::queue_pair& verbs() noexcept { return qp_; }
  [[nodiscard]] completion_queue_driver& driver() noexcept { return driver_; }

 private:
  friend class completion_queue_driver;
  friend class shared_receives;
  /// The queue pair's entries of the completion queue, and its part of all `wr_id`s.
  struct place {
    place(queue_pair_base& of, unsigned entries, const shared_receives* pool);
    place(const place&) = delete;
    ~place() { leave(); }
    void leave() noexcept;

    completion_queue_driver& driver;
    const shared_receives* pool;
    const std::uint32_t qp_num;
    const unsigned entries;
    const std::uint64_t wr_id_base;
    bool is_left = false;
  };
  struct counted_as {
    request_kind sends = request_kind::send;
    request_kind receives = request_kind::receive;
  };
  /// Returns the send queue's memory to its completion queue's pool.
  struct give_back {
    std::pmr::memory_resource* memory;
    void operator()(send_queue* queue) const noexcept;
  };

  queue_pair_base(completion_queue_driver& driver, verbs::protection_domain& pd,
                  const verbs::queue_pair_capabilities& wanted, std::size_t message_max_bytes,
                  shared_receives* pool, bool has_atomics, counted_as kinds);

  /// A CQE of a queue pair that is watched, or a failed one. In the middle of a reap.
  void complete(bool is_receive, std::uint32_t sequence, const ibv_wc& wc) noexcept;
  /// A CQE of a receive of the share, with the buffer's number.
  void complete_shared(std::uint32_t number, const ibv_wc& wc) noexcept;
  /// The share is to shrink: others lack buffers. Perhaps outside a reap.
  void shrink_wanted() noexcept;
  /// The share wanted to grow, and perhaps can.
  void growth_possible() noexcept;
  /// Gives a receive to the handler. Apart, so that a message pays for no other CQE's registers.
  [[gnu::noinline]] void hand_over(std::uint32_t number, const ibv_wc& wc) noexcept;
  [[gnu::noinline]] void complete_watched(bool is_receive, std::uint32_t sequence,
                                          const ibv_wc& wc) noexcept;
  bool complete_receive(std::uint32_t sequence, const ibv_wc& wc) noexcept;
  void count_receive(std::uint32_t number, const ibv_wc& wc) noexcept;
  void fail(const request_outcome& why) noexcept;
  /// \param unposted  how requests end that never reached the device.
  void fail(const request_outcome& why, const request_outcome& unposted) noexcept;
  /// After a failure: sees to it that all that the device has ends, and notes when it has.
  void drain() noexcept;
  /// Destroys the verbs object. The share's receives that it took are reaped first, and what
  /// remains in the completion queue afterwards.
  void destroy_verbs() noexcept;

  /// A handler, a wait for all to be idle, and a failure watch the queue pair. While none does,
  /// nothing more follows from a CQE than the end of its slot, and the driver tells the queues.
  void watch(bool is_watched) noexcept;

  completion_queue_driver& driver_;
  std::unique_ptr<receive_share> share_;  // Goes after what takes from it.
  verbs::queue_pair qp_;
  place place_;
  const std::shared_ptr<held_by_queues> held_;
  const std::unique_ptr<send_queue, give_back> sends_;
  receive_queue receives_;
  message_handler* handler_ = nullptr;
  std::uint32_t handled_receives_ = 0;  ///< the handler's, that the device has
  const counted_as kinds_;
  bool idle_is_awaited_ = false;
  request_outcome reason_;
  event failed_;
  event drained_;
  event sends_idle_;
  event last_receive_;
};

}  // namespace cordma
