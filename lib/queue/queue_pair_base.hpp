#pragma once

#include "completion_queue_driver.hpp"

#include <cordma/coro/event.hpp>
#include <cordma/detail/queue/send_operation.hpp>
#include <cordma/queue/shared_receives.hpp>
#include <cordma/verbs/queue_pair.hpp>

#include <memory>

namespace cordma {

/// What every reliable queue pair has in common, however its requests are made: the verbs object,
/// its place on a completion queue, and its end. Thread: the executor's.
class queue_pair_base {
 public:
  queue_pair_base(const queue_pair_base&) = delete;
  queue_pair_base& operator=(const queue_pair_base&) = delete;

  /// Ends everything that waits with `why`, refuses what comes, and puts the queue pair in ERROR,
  /// so that the device gives back what it has. Idempotent: the first reason stays.
  void abort(const request_outcome& why) noexcept;
  /// Why it no longer works; none while it does.
  [[nodiscard]] const request_outcome& failure_reason() const noexcept { return reason_; }
  [[nodiscard]] bool has_failed() const noexcept { return bool(reason_.code); }
  /// Set once it no longer works. To be waited for in tasks: a coroutine without a scheduler would
  /// be resumed in the middle of a reap.
  [[nodiscard]] event& failed_event() noexcept { return failed_; }

  /// Its part of the pool that it takes its receives from. Null: it has receives of its own.
  [[nodiscard]] receive_share* share() noexcept { return share_.get(); }
  /// The device says that it takes no more of them (IBV_EVENT_QP_LAST_WQE_REACHED), for `why`.
  void last_receive_taken(const request_outcome& why) noexcept;
  /// Set then.
  [[nodiscard]] event& last_receive_event() noexcept { return last_receive_; }

  [[nodiscard]] verbs::queue_pair& verbs() noexcept { return qp_; }
  [[nodiscard]] completion_queue_driver& driver() noexcept { return driver_; }

 protected:
  /// \errors  what `verbs::queue_pair` throws; errc::limit_exceeded when the completion queue has
  ///   no room for all that this one can have outstanding, or the pool, if any, no buffers for it;
  ///   errc::wrong_protection_domain: the pool's is not `pd`.
  queue_pair_base(completion_queue_driver& driver, verbs::protection_domain& pd,
                  const verbs::queue_pair_capabilities& wanted, shared_receives* pool = nullptr);
  virtual ~queue_pair_base();

  /// Of a `queue_pair`: its queues, while nothing more follows from a completion than the end of
  /// its slot; null, since it was awaited that all are idle, there is a handler, or it has failed.
  /// Of all others always.
  void set_unwatched(send_queue* sends, receive_queue* receives) noexcept {
    driver_.set_unwatched(wr_id_base_, sends, receives);
  }

  /// A request's `wr_id` is one of these with a sequence number, 32 bits, that `complete` gets.
  [[nodiscard]] std::uint64_t send_id_base() const noexcept { return wr_id_base_; }
  [[nodiscard]] std::uint64_t receive_id_base() const noexcept;
  void fail(const request_outcome& why) noexcept;
  /// The end of the verbs object. Of its share's receives, those that it took are reaped first, and
  /// what remains in the completion queue afterwards.
  void destroy_verbs() noexcept;

 private:
  friend class completion_queue_driver;
  friend class shared_receives;
  void fail(const request_outcome& why, const request_outcome& unposted) noexcept;
  /// A completion entry, of one that is watched or a failed one. In the middle of a reap.
  virtual void complete(bool is_receive, std::uint32_t sequence, const ibv_wc& wc) noexcept = 0;
  /// The same of its share, with the buffer's number.
  virtual void complete_shared(std::uint32_t, const ibv_wc&) noexcept {}
  /// Its share is to shrink: others lack buffers. Perhaps outside a reap.
  virtual void shrink_wanted() noexcept {}
  /// Its share wanted to grow, and perhaps can.
  virtual void growth_possible() noexcept {}
  /// It no longer works, and is in ERROR: what never reached the device ends, with `unposted`.
  virtual void on_failure(const request_outcome& unposted) noexcept = 0;
  /// Nothing that the device has will be heard of.
  virtual void end_all(const request_outcome& why) noexcept = 0;

  completion_queue_driver& driver_;
  std::unique_ptr<receive_share> share_;  // Goes after what takes from it.
  verbs::queue_pair qp_;
  std::uint32_t num_;  // When it is destroyed, too.
  unsigned entries_;
  std::uint64_t wr_id_base_;
  request_outcome reason_;
  event failed_;
  event last_receive_;
};

}  // namespace cordma
