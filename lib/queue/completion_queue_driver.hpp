#pragma once

#include "block_pool.hpp"
#include "doorbell_batch.hpp"
#include "mr_hold_cache.hpp"
#include "spin_window.hpp"
#include "transfer_tally.hpp"

#include <cordma/detail/coro/frame_cache.hpp>
#include <cordma/detail/io/fd_watch.hpp>
#include <cordma/detail/io/poller.hpp>
#include <cordma/detail/queue/send_operation.hpp>
#include <cordma/io/executor.hpp>
#include <cordma/queue/completion.hpp>
#include <cordma/queue/work_request.hpp>
#include <cordma/verbs/completion_queue.hpp>

#include <array>
#include <cstdint>
#include <memory>
#include <memory_resource>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

namespace cordma {

class callback_queue_pair;
class receive_queue;
class send_queue;
class shared_receives;

/// First sequence number of each queue pair. Starting close to the wrap at 2^32 makes every program
/// of some length pass the wrap, so no bug hides there.
inline constexpr std::uint32_t sequence_first = std::uint32_t(-200);

/// Reaps one completion queue for all its queue pairs and ends their slots. The driver never
/// resumes a task itself. Ended operations go to the executor's ready list in batches, except those
/// that asked for an inline notification.
///
/// Before the executor sleeps, the driver polls until the queue is empty, reads a pending channel
/// event, arms, and polls again. The executor sleeps only if the second poll found nothing. A
/// completion after the arming raises an event, so no wake-up is lost and no timer is needed.
///
/// The driver outlives its queue pairs. \thread the executor's.
class completion_queue_driver final : private poller {
 public:
  static constexpr unsigned poll_batch_max = 64;
  /// CQEs that one iteration reaps, so that timers and sockets run while completions never end.
  static constexpr unsigned completions_per_iteration_max = 1024;
  static constexpr unsigned queue_pairs_max = (1u << 16) - 1;

  /// \errors errc::limit_exceeded: `depth` or `poll_batch`; what verbs::completion_queue throws.
  completion_queue_driver(cordma::executor& executor, verbs::context& ctx,
                          const completion_queue_options& options = {},
                          const verbs::protection_domain* pd = nullptr);
  completion_queue_driver(const completion_queue_driver&) = delete;
  completion_queue_driver& operator=(const completion_queue_driver&) = delete;
  ~completion_queue_driver() override;

  /// Reaps the available CQEs and returns their number. Manual mode reaps in no other way. What is
  /// called at the end of a request must not reap: CQEs would be handled out of order, and the
  /// receives among them lost.
  std::size_t reap() noexcept;

  /// Reaps until the queue is empty or has given as many CQEs as it can hold. CQEs that come
  /// meanwhile wait for the next iteration. The function does nothing in manual mode.
  void reap_all() noexcept;

  /// Reaps everything in every mode, for a queue pair that ends and whose shared receives must not
  /// be lost. Not callable in the middle of a reap.
  void reap_to_the_end() noexcept;

  /// Ends every slot of the queue pairs of one port, or of every port (0), whose CQEs will never
  /// come. Of every port, ends also the waits for messages of pools in XRC domains.
  void fail(const request_outcome& how, int port = 0) noexcept;
  /// Fails one queue pair, as a failed CQE of it would.
  void fail_one(std::uint64_t wr_id_base, const request_outcome& why) noexcept;

  [[nodiscard]] cordma::executor& executor() const noexcept { return executor_; }
  [[nodiscard]] verbs::completion_queue& verbs() noexcept { return cq_; }
  /// Returns the present counters. \thread any.
  [[nodiscard]] completion_counters counters() const noexcept;
  /// Returns the outcomes of its queue pairs' requests, including destroyed queue pairs. Shared
  /// receives are counted when they end. \thread any.
  [[nodiscard]] transfer_counters requests() const noexcept { return tally_.read(); }
  /// Returns the counters that the queue pairs write.
  [[nodiscard]] transfer_tally& tally() noexcept { return tally_; }
  [[nodiscard]] doorbell_batch& doorbells() noexcept { return doorbells_; }
  /// Returns the memory resource that places its send queues beside each other.
  [[nodiscard]] std::pmr::polymorphic_allocator<> send_queue_memory() noexcept {
    return frame_cache::is_recycling ? &send_queue_memory_ : std::pmr::new_delete_resource();
  }
  /// Returns the memory that the queues of one protection domain have acquired.
  [[nodiscard]] std::shared_ptr<held_by_queues> held_of(const ibv_pd* pd);
  /// Returns the CQEs not yet reserved by a queue pair. In manual mode, a destroyed queue pair's
  /// CQEs come back when a reap finds the queue empty.
  [[nodiscard]] unsigned room() const noexcept { return cq_.capacity() - reserved_; }
  /// Returns the CQEs that a queue pair of `pool` needs besides its own. They cover all that the
  /// pool can complete here at once, whatever peers do. The result is 0 if another queue pair of
  /// the pool has reserved them, or if `pool` is null.
  [[nodiscard]] unsigned cqes_for(const shared_receives* pool) const noexcept;
  /// Returns the queue pair of a verbs object; null if it is not on this queue.
  [[nodiscard]] callback_queue_pair* find(const ibv_qp* qp) const noexcept;
  [[nodiscard]] bool is(const ibv_cq* cq) const noexcept { return cq == cq_.native_handle(); }

  /// Returns true if the next completion raises an event; false also after a wake-up without an
  /// event. For tests.
  [[nodiscard]] bool is_armed() const noexcept { return armed_ && unread_wake_ups_ == 0; }

 private:
  friend class callback_queue_pair;
  friend class shared_receives;
  struct entry {
    callback_queue_pair* qp = nullptr;
    shared_receives* pool = nullptr;  // A pool of an XRC domain, which has the entry to itself.
    std::uint32_t key = ~0u;          // First part of the `wr_id`s of its queue pair.
  };
  struct channel_watch : fd_watch {
    explicit channel_watch(completion_queue_driver& d)
        : fd_watch{d.executor_, d.channel_->fd(), fd_events::readable, &on_channel}, driver{d} {}
    completion_queue_driver& driver;
  };

  std::size_t poll() noexcept override { return reap(); }
  bool prepare_wait() noexcept override;
  static void on_channel(fd_watch& watch) noexcept;
  bool read_event() noexcept;
  /// Handles a CQE by the fast path: success of the oldest request of an unwatched queue pair.
  /// Returns false if the CQE needs `dispatch_any`; nothing has changed then.
  bool has_succeeded(const ibv_wc& wc) noexcept;
  /// Handles any CQE: of a watched or unknown queue pair, failed, or ending several requests.
  [[gnu::noinline]] void dispatch_any(const ibv_wc& wc) noexcept;
  void grow();
  /// Reserves CQEs and returns the `wr_id` part that names the queue pair.
  std::uint64_t attach(callback_queue_pair& qp);
  /// Does the same for a pool of an XRC domain, whose receives complete here alone.
  std::uint64_t attach(shared_receives& pool);
  /// Detaches a pool whose queue is destroyed. CQEs that it left are ignored.
  void detach(const shared_receives& pool, std::uint64_t wr_id_base) noexcept;
  /// \errors errc::limit_exceeded: fewer CQEs are free.
  void check_room(unsigned needed, const char* call) const;
  /// Takes a free entry of the table, of which there is one.
  [[nodiscard]] entry& take_entry() noexcept;
  void free_entry(std::uint64_t wr_id_base) noexcept;
  void give_up(unsigned cqes) noexcept;
  /// Ignores later CQEs of a queue pair's own requests before it is detached. CQEs of shared
  /// receives are still handled.
  void ignore_requests(std::uint64_t wr_id_base) noexcept;
  void set_unwatched(std::uint64_t wr_id_base, send_queue* sends, receive_queue* receives) noexcept;
  /// Detaches a queue pair, whose shared receives have all been reaped.
  void detach(const callback_queue_pair& qp, std::uint64_t wr_id_base) noexcept;

  cordma::executor& executor_;
  completion_mode mode_;
  unsigned poll_batch_;
  spin_window spin_;
  std::optional<verbs::completion_channel> channel_;
  verbs::completion_queue cq_;
  std::optional<channel_watch> watch_;

  unsigned reserved_ = 0;
  // CQEs in `reserved_` of destroyed queue pairs, until the queue is seen empty.
  unsigned leaving_ = 0;
  bool armed_ = false;
  bool is_reaping_ = false;       // CQEs that were polled are being handled.
  unsigned unread_wake_ups_ = 0;  // Wake-ups whose events, if any, are read before the next arming.
  // The size is a power of two, so that every key has a place. The key stored there tells whether
  // it is the same queue pair.
  std::vector<entry> queue_pairs_;
  // The send queue of each queue pair that has no watcher, for which a completion only ends a slot;
  // null for others.
  std::vector<send_queue*> unwatched_sends_;
  std::vector<receive_queue*> unwatched_receives_;
  std::size_t mask_ = 0;
  std::vector<std::uint16_t> free_indices_;
  std::unordered_map<std::uint32_t, callback_queue_pair*>
      shared_;                                                  // Queue pairs of pools, by number.
  std::unordered_map<const shared_receives*, unsigned> pools_;  // Queue pairs of each pool.
  std::unordered_map<const ibv_pd*, std::weak_ptr<held_by_queues>> held_;
  block_pool send_queue_memory_;
  struct {
    counter polls;
    counter empty_polls;
    counter completions;
    counter wake_ups;
    counter events;
    counter arms;
  } counters_;
  transfer_tally tally_;
  doorbell_batch doorbells_;
};

}  // namespace cordma
