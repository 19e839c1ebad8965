#pragma once

#include "completion_queue_driver.hpp"
#include "doorbell_batch.hpp"
#include "mr_hold_cache.hpp"
#include "post_chain.hpp"
#include "transfer_tally.hpp"

#include <cordma/detail/base/probe.hpp>
#include <cordma/detail/queue/send_operation.hpp>
#include <cordma/queue/work_request.hpp>
#include <cordma/verbs/memory_region.hpp>
#include <cordma/verbs/queue_pair.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace cordma {

/// The send side of a queue pair: a ring of slots in posting order. A reliable connection completes
/// in that order. A slot's sequence number is therefore both its index and its generation, and one
/// CQE ends every unsignaled request before it.
/// \thread the executor's.
/// \cost no allocation and no system call of its own per request; one allocation, of a longer ring,
///   when two requests first are in flight.
class alignas(64) send_queue {
  struct slot;

 public:
  /// Makes a queue; `qp` may be in any state, `message_max_bytes` is the port's limit. `driver`
  /// reaps its completion queue; `held` is the cache of that queue and of `pd`. Both outlive the
  /// send queue. `has_atomics` allocates memory for the values of atomics.
  send_queue(completion_queue_driver& driver, mr_hold_cache& held, verbs::protection_domain& pd,
             verbs::queue_pair& qp, std::size_t message_max_bytes, bool has_atomics);
  send_queue(const send_queue&) = delete;
  send_queue& operator=(const send_queue&) = delete;
  ~send_queue();

  /// Ends the request of this `wr_id`, which succeeded, if it is the oldest and nothing else ends
  /// with it. Returns false, and changes nothing, otherwise.
  [[gnu::always_inline]] bool oldest_succeeded(std::uint64_t wr_id) noexcept {
    if (wr_id != (wr_id_base_ | head_) || head_ == tail_) return false;
    retire();
    return true;
  }
  /// Ends this request, which succeeded, and all before it; `pump` may then find room for others. A
  /// request of an earlier connection epoch is ignored.
  void succeeded(std::uint32_t sequence) noexcept {
    if (sequence - head_ < in_flight()) retire_to(sequence + 1);
  }
  /// Ends this request, which failed. Returns false if it is of an earlier connection epoch.
  bool failed(std::uint32_t sequence, const request_outcome& why) noexcept;
  /// Posts what waits for room, as far as there is any.
  void pump() noexcept {
    if (at_once_max_ == 0) [[unlikely]]
      post_waiting();
  }
  /// Rings the doorbell of the group of this queue, if any.
  void ring_now() noexcept {
    if (doorbells().is_of(*this)) ring_batch();
  }
  /// Posts a signaled request if the last one in flight was unsignaled, so that everything ends.
  /// The queue pair is in ERROR, where only failed and signaled requests get a CQE.
  void flush_all(request_kind counted_as) noexcept;
  /// Ends what waits for room with `how`.
  void end_waiting(const request_outcome& how) noexcept;
  /// Ends everything with `how`; what is in flight keeps its slots and its memory.
  void end_all(const request_outcome& how) noexcept;
  /// Frees all slots after `ibv_destroy_qp` has returned.
  void release_slots() noexcept;
  /// Refuses, from now on, requests that take a receive of the peer, except the owner's
  /// `post_detached`.
  void keep_receives() noexcept { keeps_receives_ = 1; }
  /// Refuses every request from now on with `how`.
  void refuse(const request_outcome& how) noexcept;
  /// Makes all but urgent requests wait while `is_kept`, so that freed slots add up to room for
  /// several.
  void keep_room(bool is_kept) noexcept {
    cold_->is_room_kept = is_kept;
    set_at_once_max();
  }

  /// Reserves the last `slots` of the queue for urgent requests, which find that room at once,
  /// however many others wait. Call it before anything is posted, with less than the depth.
  void reserve(std::uint32_t slots) noexcept;

  /// Returns the number of non-urgent requests that the queue takes.
  [[nodiscard]] std::uint32_t depth() const noexcept { return cold_->depth; }
  /// Returns how many requests can be posted together. Unsignaled requests that no CQE ends can
  /// fill half the queue; a batch larger than the rest would wait for ever.
  [[nodiscard]] std::uint32_t batch_max() const noexcept { return depth() / 2 + 1; }
  [[nodiscard]] std::uint32_t in_flight() const noexcept { return tail_ - head_; }
  /// Returns true if one more non-urgent request would be posted at once.
  [[nodiscard]] bool has_room() const noexcept {
    return cold_->waiting.empty() && in_flight() < depth();
  }
  /// Returns the number of requests ever given to the device, modulo 2^32.
  [[nodiscard]] std::uint32_t posted_total() const noexcept { return tail_ - sequence_first; }
  [[nodiscard]] bool is_idle() const noexcept { return in_flight() == 0 && cold_->waiting.empty(); }
  /// Returns true if a request is in flight whose end the device will report. Otherwise nothing is
  /// in flight, or only unsignaled requests.
  [[nodiscard]] bool awaits_completion() const noexcept {
    return in_flight() > 0 && will_complete(head_);
  }
  /// Returns true if the device will report the end of everything in flight.
  [[nodiscard]] bool will_end_all() const noexcept {
    return in_flight() == 0 || will_complete(tail_ - 1);
  }
  void set_wr_id_base(std::uint64_t base) noexcept { wr_id_base_ = base; }

  // `send_operation` calls the following functions.
  /// Posts the requests of `o` with one doorbell, queues them for room, or ends `o` with the
  /// reason. All of them are posted, or none.
  static void post(send_operation& o, const wr_list& list) noexcept { o.queue_->admit(o, list); }
  /// Removes `o`, which waited for room, and releases what it had acquired.
  void withdraw(send_operation& o) noexcept;
  /// Gives the unended slots of `from` to `to`; null detaches them.
  void adopt(const send_operation& from, send_operation* to) noexcept;
  /// Returns true if a signaled request at or after `sequence` is in flight.
  [[nodiscard]] bool will_complete(std::uint32_t sequence) const noexcept {
    return std::int32_t(last_signaled_ - sequence) >= 0;
  }
  [[nodiscard]] cordma::scheduler& scheduler() const noexcept { return doorbells().scheduler(); }
  [[nodiscard]] transfer_tally& tally() const noexcept { return driver_.tally(); }
  [[nodiscard]] std::uint32_t num() const noexcept { return num_; }
  /// Returns the domain of the memory that requests may name.
  [[nodiscard]] const ibv_pd* pd() const noexcept { return cold_->pd; }
  /// Returns true if each request names its destination.
  [[nodiscard]] bool has_destinations() const noexcept { return has_destinations_ != 0; }

  /// Posts requests that nobody awaits, ahead of all that waits for room; there must be room. The
  /// only check is that their memory is there. A request is signaled when it asks for that, and as
  /// often as the queue needs. Returns false if they are refused, which fails the queue pair.
  bool post_detached(const wr_list& list) noexcept;

 private:
  friend class doorbell_batch;
  /// A free slot has no owner, no lease and no memory.
  struct alignas(32) slot {
    send_operation* owner = nullptr;
    lease_block* lease = nullptr;
    memory_block* held = nullptr;  // The first acquired block.
    std::uint16_t more_held = 0;   // Number of further acquired blocks.
    std::uint16_t index = 0;       // Index within its operation.
    request_kind kind{};
  };

  /// A doorbell that the device refused, in whole or in part.
  struct failed_doorbell {
    int rc;                         // Result of ibv_post_send(3).
    const ibv_send_wr* bad;         // The first request that it did not take; null: unknown.
    const ibv_send_wr* first;       // The first of the chain.
    std::uint32_t count;            // Length of the chain.
    std::uint32_t signaled_before;  // The last signaled request before these.
  };
  [[gnu::always_inline]] void probe_posted(request_kind kind,
                                           std::uint32_t sequence) const noexcept {
    CORDMA_PROBE3(post, num_, unsigned(kind), sequence);
  }
  [[nodiscard]] bool has_room(const send_operation& o) noexcept;
  /// Makes the longer ring if need be. Returns false without memory.
  [[nodiscard]] bool has_long_ring() noexcept;
  /// Recomputes `at_once_max_` after its inputs changed.
  void set_at_once_max() noexcept {
    const bool waits =
        cold_->is_room_kept || cold_->refusal.has_failed() || !cold_->waiting.empty();
    at_once_max_ = waits ? 0 : std::min(depth(), mask_ + 1);
  }
  void post_waiting() noexcept;
  /// Checks a request before its memory is acquired.
  [[nodiscard]] request_outcome check(const wr_summary& request) const noexcept;
  [[nodiscard]] request_outcome check_and_acquire(const wr_summary& request) noexcept;
  /// Returns the call that takes no such request; null: it is taken. Requests with the kind and the
  /// opcode of a SEND or WRITE need no such check.
  [[nodiscard]] const char* refusing_call(const wr_summary& request) const noexcept;
  /// Checks what a device would refuse a bind for.
  [[nodiscard]] request_outcome check(const bind_request& bind) const noexcept;
  /// Checks the request's lease, if any. The queue does so when it posts, because the request may
  /// have waited for room.
  [[nodiscard]] request_outcome check_lease(const wr_summary& request) const noexcept;
  [[nodiscard]] request_outcome acquire(const wr_summary& request) noexcept {
    return held_.acquire(request.local,
                         request.is_read() ? verbs::access::local_write : verbs::access::none,
                         "post_send");
  }
  void release(std::span<const wr_summary> requests) noexcept {
    for (const wr_summary& request : requests) held_.release(request.local);
  }
  /// Checks each request and acquires their memory, then posts or queues `o`.
  void admit(send_operation& o, const wr_list& list) noexcept;
  void post_now(send_operation& o, const wr_list& list) noexcept;
  /// Returns true if an awaited request joins the doorbell group of this iteration.
  [[nodiscard]] bool batches(const wr_summary& request) const noexcept;
  void post_batched(send_operation& o, const wr_summary& request) noexcept;
  void begin(send_operation& o) noexcept;
  /// Gives each request a slot and makes its work request, chained. `ends_signaled` signals the
  /// last; otherwise each request that asks for it is signaled.
  void fill(send_operation* owner, const wr_list& list, bool ends_signaled) noexcept;
  /// Gives the next request a slot, which from then on owns its memory and its lease.
  void give_slot(send_operation* owner, std::uint32_t index, const wr_summary& request) noexcept;
  /// Makes the work request of the last slot. Returns the number of SGEs that it uses.
  int fill_wr(const wr_summary& request, ibv_send_wr& wr, ibv_sge* sges) noexcept;
  /// Puts the word where the device reads it: the coroutine's frame may be gone by then.
  int fill_atomic_write(const wr_summary& request, ibv_send_wr& wr, ibv_sge& sge) noexcept;
  /// Returns the send flag to add to request `sequence`, which is posted next.
  unsigned signal_flag(std::uint32_t sequence, bool is_asked_for) noexcept;
  /// Gives the requests slots and rings the doorbell. Returns false if that failed.
  bool post_list(send_operation* owner, const wr_list& list, bool ends_signaled) noexcept;
  /// Takes back the requests that the device did not take. Ends the operations of these, and of
  /// those that the device took but will not complete. Returns how they ended.
  [[gnu::cold]] request_outcome doorbell_failed(const failed_doorbell& doorbell) noexcept;
  /// Ends an operation that the queue owns and that has left the queue.
  static void end_own(send_operation& o) noexcept;
  [[nodiscard]] doorbell_batch& doorbells() const noexcept { return driver_.doorbells(); }
  [[nodiscard]] std::size_t index_of(std::uint32_t sequence) const noexcept {
    return (sequence - origin_) & mask_;
  }
  [[gnu::always_inline]] slot& at(std::uint32_t sequence) noexcept {
    return slots_[index_of(sequence)];
  }
  [[nodiscard]] std::size_t index_of(const slot& which) const noexcept {
    return std::size_t(&which - slots_);
  }
  memory_block** more_held_by(const slot& which) noexcept {
    return cold_->more_held.data() + index_of(which) * (cold_->sge_max - 1);
  }
  /// Frees the oldest slot, whose request has ended. Returns its owner, if any. An empty ring
  /// restarts in the cache lines that were used last. It does so here, where no posting waits for
  /// it.
  [[gnu::always_inline]] send_operation* free_oldest(slot& oldest) noexcept {
    release_used(oldest);
    ++head_;
    if (head_ == tail_) origin_ = tail_;
    return std::exchange(oldest.owner, nullptr);
  }
  /// Releases the memory and the lease, if any, of a slot that used them.
  [[gnu::always_inline]] void release_used(slot& by) noexcept {
    if (by.held != nullptr) {
      held_.release(*std::exchange(by.held, nullptr));
      if (by.more_held != 0) [[unlikely]]
        release_more(by);
    }
    if (by.lease != nullptr) [[unlikely]]
      std::exchange(by.lease, nullptr)->release();
  }
  [[gnu::noinline]] void release_more(slot& by) noexcept {
    for (; by.more_held > 0; --by.more_held) held_.release(*more_held_by(by)[by.more_held - 1u]);
  }
  /// Gives a chain to the device: ibv_post_send(3).
  [[nodiscard, gnu::always_inline]] int ring(ibv_send_wr* first, ibv_send_wr** bad) noexcept {
    if (!has_own_calls_) [[likely]]
      return ibv_post_send(native_, first, bad);
    has_own_calls_ = 0;
    return detail::post_chain(native_, first, bad);
  }
  void ring_batch() noexcept;
  /// Rings the doorbell, then pumps: a failed doorbell may leave room, which no CQE will report.
  void ring_and_pump() noexcept;
  /// Retires the oldest request, which succeeded.
  void retire() noexcept;
  /// Retires all requests before `end`, which succeeded; the last of them is in flight.
  [[gnu::noinline]] void retire_to(std::uint32_t end) noexcept;
  /// Retires the oldest request, which failed.
  void retire(const request_outcome& failure) noexcept;
  /// Ends an operation that never reaches the device.
  [[gnu::cold]] void end_unposted(send_operation& o, std::span<const wr_summary> requests,
                                  const request_outcome& how) noexcept;

  struct cold_state {
    cold_state(verbs::protection_domain& pd, verbs::queue_pair& qp, bool has_atomics);
    /// Returns the size of the longer ring.
    [[nodiscard]] std::size_t ring_size() const noexcept { return std::bit_ceil(depth_max); }

    verbs::queue_pair& qp;
    const ibv_pd* const pd;         // The domain of its memory.
    const std::uint32_t depth_max;  // Slots for urgent requests.
    std::uint32_t depth;            // Slots for all other requests.
    const std::uint32_t sge_max;
    const std::uint32_t read_sge_max;  // Some devices gather more than they scatter.
    bool is_room_kept = false;
    request_outcome refusal;  // Every request is refused so.
    intrusive_list<send_operation> waiting;
    std::unique_ptr<slot[]> ring;          // Null: one slot was enough so far.
    std::vector<memory_block*> more_held;  // Per slot, one less than `sge_max`.
    // One word per slot: the device puts the previous value there, and reads an ATOMIC WRITE's.
    std::vector<std::uint64_t> atomic_values;
    std::optional<verbs::memory_region> atomic_mr;
  };

  // With a thousand connections, neither this queue nor its page table is in a near cache. The
  // members that each request uses therefore fill two cache lines. They include the single slot of
  // a sender that posts one request at a time, and lie beside those of other queues.
  std::uint32_t head_ = sequence_first;    // Oldest request in flight.
  std::uint32_t tail_ = sequence_first;    // Next request to be posted.
  std::uint32_t origin_ = sequence_first;  // Number that has, or had, the first place of the ring.
  std::uint32_t mask_ = 0;                 // Size of the ring, less 1.
  slot* slots_ = &only_slot_;              // `only_slot_`, until two requests are in flight.
  mr_hold_cache& held_;
  ibv_qp* const native_;
  completion_queue_driver& driver_;
  std::uint64_t wr_id_base_ = 0;
  std::uint32_t at_once_max_;  // 0 while operations wait, room is kept, or everything is refused.
  std::uint32_t last_signaled_ = sequence_first - 1;

  std::uint32_t unsignaled_max_;
  const std::uint32_t message_max_bytes_;
  const std::uint32_t inline_max_ : 29;
  const std::uint32_t has_destinations_ : 1;  // Each request names its own: UD, XRC.
  std::uint32_t keeps_receives_ : 1 = 0;      // Receives of the peer are for `post_detached` only.
  std::uint32_t has_own_calls_ : 1 = 0;       // `post_chain` is to post what is filled in.
  const std::uint32_t num_;
  const std::unique_ptr<cold_state> cold_;
  slot only_slot_;
};
static_assert(sizeof(send_queue) == 128);

[[gnu::always_inline]] inline void send_queue::retire() noexcept {
  slot& oldest = at(head_);
  tally().completed(oldest.kind);
  CORDMA_PROBE5(complete, num_, unsigned(oldest.kind), head_, 0, 0);
  send_operation* const owner = free_oldest(oldest);
  if (owner == nullptr) return;
  if (oldest.kind == request_kind::atomic) [[unlikely]]
    owner->values_before_[oldest.index] = cold_->atomic_values[index_of(oldest)];
  owner->slot_ended();
}

}  // namespace cordma
