#pragma once

#include "doorbell_batch.hpp"
#include "held_memory.hpp"
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

class queue_pair_base;
class receive_queue;
class send_queue;
class shared_receives;

/// Where the sequence numbers of a queue pair's requests start: so near their wrap at 2^32 that
/// every program of some length passes it, and no bug can hide behind it.
inline constexpr std::uint32_t sequence_first = std::uint32_t(-200);

/// Reaps one completion queue for all the queue pairs on it and tells their slots. It never resumes
/// a task itself: what ended goes to the executor's ready list, a batch at a time, but for what
/// asked to be told at once.
///
/// Before the executor sleeps: the queue was polled empty; read the channel's event, if one came;
/// arm; poll again, for what came in between; sleep only if that found nothing. A completion after
/// the arming raises an event, so none is ever waited for in vain, and no timer looks after it.
/// Thread: the executor's. Must outlive its queue pairs.
class completion_queue_driver final : private poller {
 public:
  static constexpr unsigned poll_batch_max = 64;
  /// A turn's share, so that timers and sockets get theirs while completions never end.
  static constexpr unsigned completions_per_turn_max = 1024;
  static constexpr unsigned queue_pairs_max = (1u << 16) - 1;

  /// \errors errc::limit_exceeded: `depth` or `poll_batch`; what verbs::completion_queue throws.
  completion_queue_driver(executor& home, verbs::context& ctx,
                          const completion_queue_options& options = {});
  completion_queue_driver(const completion_queue_driver&) = delete;
  completion_queue_driver& operator=(const completion_queue_driver&) = delete;
  ~completion_queue_driver() override;

  /// Reaps what is there. In manual mode the only thing that does. Returns how many completions.
  std::size_t reap() noexcept;

  /// The same until the queue is empty, or has given all that it can hold at once: what comes
  /// meanwhile waits for the next turn. In manual mode it does nothing.
  void reap_all() noexcept;

  /// The same in every mode: for a queue pair that ends, and whose shared receives must not be
  /// lost. Not in the middle of a reap.
  void reap_to_the_end() noexcept;

  /// Ends every slot of every queue pair on it, with a lost or broken queue: its entries never
  /// come.
  void fail(const request_outcome& how) noexcept;

  /// The same for those of one port; 0: all.
  void fail_port(int port, const request_outcome& how) noexcept;

  [[nodiscard]] executor& home() const noexcept { return home_; }
  [[nodiscard]] verbs::completion_queue& verbs() noexcept { return cq_; }
  /// Now. Thread: any.
  [[nodiscard]] completion_counters counters() const noexcept;
  /// What became of the requests of its queue pairs, those that are gone included; of shared
  /// receives, the ends. Thread: any.
  [[nodiscard]] transfer_counters requests() const noexcept { return tally_.read(); }
  /// For its queue pairs.
  [[nodiscard]] transfer_tally& tally() noexcept { return tally_; }
  [[nodiscard]] doorbell_batch& doorbells() noexcept { return doorbells_; }
  /// Where its send queues are, beside each other.
  [[nodiscard]] std::pmr::polymorphic_allocator<> send_queue_memory() noexcept {
    return frame_cache::is_recycling ? &send_queue_memory_ : std::pmr::new_delete_resource();
  }
  /// What those of one protection domain hold.
  [[nodiscard]] std::shared_ptr<held_by_queues> held_of(const ibv_pd* pd);
  /// Entries not yet promised to a queue pair. In manual mode those of a queue pair that is gone
  /// come back when a reap finds the queue empty.
  [[nodiscard]] unsigned room() const noexcept { return cq_.capacity() - reserved_; }
  /// Entries that a queue pair needs besides its own: for all that its pool can complete here at
  /// once, whatever peers do, unless another of that pool has them already. Null: none.
  [[nodiscard]] unsigned entries_for(const shared_receives* pool) const noexcept;
  /// The queue pair behind a verbs object; null when it is not on this queue.
  [[nodiscard]] queue_pair_base* find(const ibv_qp* qp) const noexcept;
  [[nodiscard]] bool is(const ibv_cq* cq) const noexcept { return cq == cq_.native_handle(); }

  /// Called between arming and the second poll, and between the last poll and arming: for tests
  /// that let completions race with it.
  void set_race_point(void (*at_race_point)(void*), void* context) noexcept {
    at_race_point_ = at_race_point;
    race_context_ = context;
  }
  /// Whether the next completion raises an event; false also after a wake-up without one. For
  /// tests.
  [[nodiscard]] bool is_armed() const noexcept { return armed_ && unread_wake_ups_ == 0; }

 private:
  friend class queue_pair_base;
  struct entry {
    queue_pair_base* qp = nullptr;
    std::uint32_t key = ~0u;  // What the `wr_id`s of its queue pair begin with.
  };
  struct pool_entry {
    const shared_receives* pool;
    unsigned queue_pairs;
  };

  struct channel_watch : fd_watch {
    explicit channel_watch(completion_queue_driver& d)
        : fd_watch{d.home_, d.channel_->fd(), fd_events::readable, &on_channel}, driver{d} {}
    completion_queue_driver& driver;
  };

  std::size_t poll() noexcept override { return reap(); }
  bool prepare_wait() noexcept override;
  static void on_channel(fd_watch& watch) noexcept;
  bool read_event() noexcept;
  using polled = std::array<ibv_wc, poll_batch_max>;
  /// As `ibv_poll_cq`.
  int poll_into(polled& to) noexcept;
  [[gnu::always_inline]] void found(std::size_t completions) noexcept {
    counters_.completions.add(completions);
    if (!spin_.found()) [[unlikely]]
      spin_.woke(home_.now());
  }
  void dispatch(const ibv_wc& wc) noexcept;
  /// Of an unwatched queue pair: the oldest of a queue has. False: nothing has happened.
  bool has_succeeded(const ibv_wc& wc) noexcept;
  /// The same of one that is watched, or failed, or ends several, or is of none that is here.
  [[gnu::noinline]] void dispatch_any(const ibv_wc& wc) noexcept;
  void dispatch_shared(const ibv_wc& wc) noexcept;
  void add_entries();
  void race_point() const noexcept {
    if (at_race_point_ != nullptr) at_race_point_(race_context_);
  }
  /// Reserves entries and gives the `wr_id` part that names the queue pair.
  std::uint64_t attach(queue_pair_base& qp, unsigned entries, const shared_receives* pool);
  void attach_shared(queue_pair_base& qp, const shared_receives& pool);
  /// Of a queue pair that is about to be detached, only shared receives are heard of.
  void ignore_requests(std::uint64_t wr_id_base) noexcept;
  void set_unwatched(std::uint64_t wr_id_base, send_queue* sends, receive_queue* receives) noexcept;
  void detach(std::uint64_t wr_id_base, unsigned entries) noexcept;
  void detach_shared(std::uint32_t qp_num, const shared_receives& pool) noexcept;

  executor& home_;
  completion_mode mode_;
  unsigned poll_batch_;
  spin_window spin_;
  std::optional<verbs::completion_channel> channel_;
  verbs::completion_queue cq_;
  std::optional<channel_watch> watch_;

  unsigned reserved_ = 0;
  unsigned leaving_ = 0;  // Of those: of queue pairs that are gone, until the queue is seen empty.
  bool armed_ = false;
  unsigned unread_wake_ups_ = 0;  // Whose events, if any, are read before it is armed again.
  // A power of two of them: any key has a place there, and the key in it says whether it is its
  // own.
  std::vector<entry> queue_pairs_;
  // The queues of those of which nobody watches whether more follows from a completion than the end
  // of its slot; else null.
  std::vector<send_queue*> unwatched_sends_;
  std::vector<receive_queue*> unwatched_receives_;
  std::size_t mask_ = 0;
  std::vector<std::uint16_t> free_entries_;
  std::unordered_map<std::uint32_t, queue_pair_base*> shared_;  // Of pools, by number.
  std::vector<pool_entry> pools_;
  std::unordered_map<const ibv_pd*, std::weak_ptr<held_by_queues>> held_;
  std::pmr::unsynchronized_pool_resource send_queue_memory_;
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
  void (*at_race_point_)(void*) = nullptr;
  void* race_context_ = nullptr;
};

}  // namespace cordma
