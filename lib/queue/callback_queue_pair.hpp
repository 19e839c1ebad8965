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

/// The purpose of a queue pair, and its transport. The agent's queue pair has no atomics. It counts
/// its receives, and the request that flushes it once it is broken, as kinds of its own.
struct queue_pair_role {
  bool has_atomics = true;
  request_kind sends = request_kind::send;
  request_kind receives = request_kind::receive;
  verbs::queue_pair_type type = verbs::queue_pair_type::rc;
  verbs::xrc_domain* xrc_domain = nullptr;  ///< Set for an XRC target.
};

/// A queue pair that reports by calls, and knows no coroutine. Every request
/// gets a slot, whose owner is called at its end: `send_operation::on_end`, or a `message_handler`.
/// Nothing else posts. `queue_pair` adds what is awaited.
///
/// `verbs()` gives access to setup and states. Operations in progress, and handles, may outlive the
/// queue pair.
/// \thread the executor's.
class callback_queue_pair {
 public:
  /// Makes a queue pair in RESET, whose requests are awaited, or a handler's after
  /// `hand_messages_to`.
  /// \param message_max_bytes  the port's limit (`port_info::message_max_bytes`). `post_detached`
  ///   does not check it.
  /// \param pool  supplies the receives, and outlives the queue pair. Messages then go to a
  ///   `message_handler` only, and `wanted` says nothing about receives. Such a queue pair must not
  ///   be destroyed in the middle of a reap. Its destructor reaps once, even in manual mode.
  /// \errors what `verbs::queue_pair` throws; errc::limit_exceeded: the completion queue lacks
  ///   room, or the pool lacks buffers; errc::wrong_protection_domain: the pool's is not `pd`.
  callback_queue_pair(completion_queue_driver& driver, verbs::protection_domain& pd,
                      const verbs::queue_pair_capabilities& wanted, std::size_t message_max_bytes,
                      shared_receives* pool = nullptr, const queue_pair_role& role = {});
  callback_queue_pair(const callback_queue_pair&) = delete;
  callback_queue_pair& operator=(const callback_queue_pair&) = delete;
  /// Ends operations that still wait with `errc::closed`. Memory in flight is released after
  /// `ibv_destroy_qp` has returned. \cost one bounded system call; no wait for a peer or a
  /// completion.
  ~callback_queue_pair();

  /// Ends everything that waits with `why`, refuses later requests, and puts the queue pair in
  /// ERROR, so that the device flushes its requests. Idempotent: the first reason stays.
  void abort(const request_outcome& why) noexcept;
  /// Aborts, after the messages that the device has taken are delivered: a device may acknowledge
  /// one before it completes the receive. In manual mode only those are that the program has
  /// reaped. Not in the middle of a reap.
  void abort_after_last_message(const request_outcome& why) noexcept;
  /// Returns why the queue pair no longer works; none while it does.
  [[nodiscard]] const request_outcome& failure_reason() const noexcept { return reason_; }
  [[nodiscard]] bool has_failed() const noexcept { return reason_.has_failed(); }
  /// Set once the queue pair no longer works. Wait for it in tasks only: a coroutine without a
  /// scheduler would be resumed in the middle of a reap.
  [[nodiscard]] event& failed_event() noexcept { return failed_; }
  /// Set once the queue pair no longer works and the device has none of its requests. The event
  /// never comes if the completion queue lost CQEs, so wait with a deadline.
  [[nodiscard]] event& drained_event() noexcept { return drained_; }
  /// Waits until all posted send requests have ended, or the queue pair no longer works. An
  /// unsignaled request ends only with a later signaled one.
  event::wait_op sends_idle() noexcept;

  void post_recv(const local_mr_slice& buffer) { receives_.post({&buffer, 1}); }
  void post_recv(std::span<const local_mr_slice> buffer) { receives_.post(buffer); }

  /// Gives all receives to `handler`; call it before any is posted. Afterwards operations that want
  /// a message end with errc::refused. SENDs and WRITEs with immediate data, which would take a
  /// receive of the peer, end alike. Only the handler calls `post_detached`.
  void hand_messages_to(message_handler& handler) noexcept;
  /// Posts the handler's receives, at least one, with one doorbell. The handler has chosen their
  /// numbers, which are in `wr_id`. The queue pair is in INIT or later, and has no pool.
  void post_recvs(std::span<ibv_recv_wr> wrs) noexcept;
  /// Returns the handler's receives that the device has, except those of a pool.
  [[nodiscard]] std::uint32_t posted_recvs() const noexcept { return handled_receives_; }
  /// Returns true if there is room for `count` requests of `post_detached`.
  [[nodiscard]] bool can_post_detached(std::size_t count = 1) const noexcept;
  /// Posts requests that nobody awaits, ahead of all that waits for room. Returns false if there is
  /// no room. A refusal by the device breaks the queue pair.
  [[nodiscard]] bool post_detached(const wr_list& list) noexcept;

  [[nodiscard]] send_queue& sends() noexcept { return *sends_; }
  [[nodiscard]] const send_queue& sends() const noexcept { return *sends_; }
  [[nodiscard]] receive_queue& receives() noexcept { return receives_; }
  [[nodiscard]] const receive_queue& receives() const noexcept { return receives_; }
  /// Returns the requests that the device has, or that wait for their doorbell.
  [[nodiscard]] std::uint32_t slots_in_use() const noexcept;

  /// Returns the pool's share for this queue pair; null if the receives are the queue pair's own.
  [[nodiscard]] receive_share* share() noexcept { return share_.get(); }
  /// Handles IBV_EVENT_QP_LAST_WQE_REACHED: the device takes no more of the pool's receives, for
  /// `why`.
  void last_receive_taken(const request_outcome& why) noexcept;
  /// Set once the device takes no more of the pool's receives.
  [[nodiscard]] event& last_receive_event() noexcept { return last_receive_; }

  [[nodiscard]] verbs::queue_pair& verbs() noexcept { return qp_; }
  [[nodiscard]] completion_queue_driver& driver() noexcept { return driver_; }

 private:
  friend class completion_queue_driver;
  friend class shared_receives;
  /// Returns the CQEs that the queue pair needs, besides those of its pool.
  [[nodiscard]] unsigned cqes_max() const noexcept {
    return qp_.capabilities().send_wr_max + qp_.capabilities().recv_wr_max;
  }
  /// Returns the pool of the receives; null if they are the queue pair's own.
  [[nodiscard]] const shared_receives* pool() const noexcept {
    return share_ ? &share_->pool() : nullptr;
  }
  /// Returns the send queue's memory to the pool of its completion queue.
  struct give_back {
    std::pmr::memory_resource* memory;
    void operator()(send_queue* queue) const noexcept;
  };

  /// Handles, in the middle of a reap, a CQE that failed or whose queue pair is watched.
  void complete(bool is_receive, std::uint32_t sequence, const ibv_wc& wc) noexcept;
  /// Handles a CQE of a receive of the share; `number` is the buffer's.
  void complete_shared(std::uint32_t number, const ibv_wc& wc) noexcept;
  /// Gives a receive to the handler. The function is not inlined, so that other CQEs do not save
  /// registers for it.
  [[gnu::noinline]] void hand_over(std::uint32_t number, const ibv_wc& wc) noexcept;
  [[gnu::noinline]] void complete_watched(bool is_receive, std::uint32_t sequence,
                                          const ibv_wc& wc) noexcept;
  void count_receive(std::uint32_t number, const ibv_wc& wc) noexcept;
  void fail(const request_outcome& why) noexcept;
  /// \param unposted how requests end that never reached the device.
  void fail(const request_outcome& why, const request_outcome& unposted) noexcept;
  /// The first half of `fail`: after it the device takes nothing more.
  void enter_error(const request_outcome& why) noexcept;
  /// The second half of `fail`: everything that waits ends.
  void end_waiting(const request_outcome& unposted) noexcept;
  /// Makes everything that the device has end after a failure, and sets `drained_event` when it
  /// has.
  void drain() noexcept;
  /// Destroys the verbs object. Reaps the share's receives that it took first, and the remaining
  /// CQEs afterwards.
  void destroy_verbs() noexcept;

  /// Notes whether the queue pair is watched: by a handler, a wait for idle, or a failure. While
  /// nobody watches, a CQE only ends a slot, and the driver calls the queues directly.
  void watch(bool is_watched) noexcept;

  completion_queue_driver& driver_;
  std::unique_ptr<receive_share> share_;  // Destroyed after the members that use it.
  verbs::queue_pair qp_;
  const std::shared_ptr<held_by_queues> held_;
  const std::unique_ptr<send_queue, give_back> sends_;
  receive_queue receives_;
  message_handler* handler_ = nullptr;
  bool takes_last_messages_ = false;
  std::uint32_t handled_receives_ = 0;  ///< the handler's receives that the device has
  const queue_pair_role role_;
  const std::uint64_t wr_id_base_;  ///< part of every `wr_id` that names the queue pair
  bool idle_is_awaited_ = false;
  request_outcome reason_;
  event failed_;
  event drained_;
  event sends_idle_;
  event last_receive_;
};

}  // namespace cordma
