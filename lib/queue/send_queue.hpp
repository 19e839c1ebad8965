#pragma once

#include "completion_queue_driver.hpp"
#include "doorbell_batch.hpp"
#include "held_memory.hpp"
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
/// in that order, so a slot's sequence number is both its index and its generation, and one
/// completion ends every unsignaled request before it.
/// Thread: the executor's. Cost: no allocation and no system call of its own per request; one, of a
/// longer ring, when there first are two in flight.
class alignas(64) send_queue {
  struct slot;

 public:
  /// `qp` may be in any state; `message_max_bytes` is the port's. `driver`, its completion queue's,
  /// and `held`, of that and of `pd`, outlive it. `has_atomics`: it has memory for their values.
  send_queue(completion_queue_driver& driver, held_memory& held, verbs::protection_domain& pd,
             verbs::queue_pair& qp, std::size_t message_max_bytes, bool has_atomics);
  send_queue(const send_queue&) = delete;
  send_queue& operator=(const send_queue&) = delete;
  ~send_queue();

  /// The device says that the request with this `wr_id` has succeeded, if that is the oldest, and
  /// nothing else ends with it. False: nothing has happened.
  [[gnu::always_inline]] bool oldest_succeeded(std::uint64_t wr_id) noexcept {
    if (wr_id != (wr_id_base_ | head_) || head_ == tail_) return false;
    retire();
    return true;
  }
  /// That this request has succeeded, and with it all before it: `pump` may find room for others.
  /// One of a life before has ended long ago.
  void succeeded(std::uint32_t sequence) noexcept {
    if (sequence - head_ < in_flight()) retire_to(sequence + 1);
  }
  /// The same of one that failed. False: of a life before.
  bool failed(std::uint32_t sequence, const request_outcome& why) noexcept;
  /// Posts what waits for room, as far as there is any.
  void pump() noexcept {
    if (at_once_max_ == 0) [[unlikely]]
      post_waiting();
  }
  /// What waits for one doorbell with others goes to the device now.
  void ring_now() noexcept {
    if (doorbells().is_of(*this)) ring_batch();
  }
  /// The queue pair is in ERROR, where a request has a completion entry when it failed or asked for
  /// one: posts one that asks, if the last that is in flight did not, so that all of them end.
  void flush_all(request_kind counted_as) noexcept;
  /// Ends what waits for room with `how`.
  void end_waiting(const request_outcome& how) noexcept;
  /// Ends everything with `how`; what is in flight keeps its slots and its memory.
  void end_all(const request_outcome& how) noexcept;
  /// The device is done with this queue: `ibv_destroy_qp` has returned.
  void release_slots() noexcept;
  /// From now on what takes a receive of the peer's is refused, but for the owner's
  /// `post_detached`.
  void keep_receives() noexcept { keeps_receives_ = 1; }
  /// From now on every request is refused with `how`.
  void refuse(const request_outcome& how) noexcept;
  /// While it is kept, all but urgent requests wait: what frees becomes room for several.
  void keep_room(bool is_kept) noexcept {
    seldom_->is_room_kept = is_kept;
    set_at_once_max();
  }

  /// The last `slots` of the queue are for urgent requests only: of those, as many find room at
  /// once, however many others wait. Before anything is posted; less than the depth.
  void reserve(std::uint32_t slots) noexcept;

  /// Requests, but for urgent ones, that it takes.
  [[nodiscard]] std::uint32_t depth() const noexcept { return seldom_->depth; }
  /// Requests that can be posted together. A run of unsignaled ones that nothing ends can be half
  /// the queue long; a batch that needs more than the rest of it would wait for ever.
  [[nodiscard]] std::uint32_t batch_max() const noexcept { return depth() / 2 + 1; }
  [[nodiscard]] std::uint32_t in_flight() const noexcept { return tail_ - head_; }
  /// Whether one more, that is not urgent, would be posted at once.
  [[nodiscard]] bool has_room() const noexcept;
  /// Requests ever given to the device, modulo 2^32.
  [[nodiscard]] std::uint32_t posted_total() const noexcept { return tail_ - sequence_first; }
  [[nodiscard]] bool is_idle() const noexcept;
  /// Whether something is in flight whose end the device will tell; else nothing is, or only
  /// requests without a completion entry of their own.
  [[nodiscard]] bool awaits_completion() const noexcept {
    return in_flight() > 0 && will_complete(head_);
  }
  /// Whether the device will tell the end of all that is in flight.
  [[nodiscard]] bool will_end_all() const noexcept {
    return in_flight() == 0 || will_complete(tail_ - 1);
  }
  void set_wr_id_base(std::uint64_t base) noexcept { wr_id_base_ = base; }

  // For `send_operation`.
  /// Posts the requests of `o` with one doorbell, queues them for room, or ends `o` with why not:
  /// all of them or none.
  static void post(send_operation& o, const wr_list& list) noexcept { o.queue_->admit(o, list); }
  /// `o` waits for room no longer, and holds nothing.
  void withdraw(send_operation& o) noexcept;
  /// Those slots of `from` that have not ended belong to `to`; null: nobody is told of their end.
  void adopt(const send_operation& from, send_operation* to) noexcept;
  /// Whether a signaled request at or after `sequence` is in flight.
  [[nodiscard]] bool will_complete(std::uint32_t sequence) const noexcept {
    return std::int32_t(last_signaled_ - sequence) >= 0;
  }
  [[nodiscard]] scheduler& home() const noexcept { return doorbells().home(); }
  [[nodiscard]] transfer_tally& tally() const noexcept { return driver_.tally(); }
  [[nodiscard]] std::uint32_t num() const noexcept { return num_; }

  /// Posts requests that nobody awaits, ahead of all that waits for room: there is some. Checks
  /// nothing but that their memory is there. A request has a completion entry when it asks for one,
  /// and as often as the queue needs one. Returns 0, EINVAL when memory is gone, or what
  /// ibv_post_send(3) does.
  [[nodiscard]] int post_detached(const wr_list& list) noexcept;

 private:
  friend class doorbell_batch;
  /// A free one has no owner, no lease and no memory.
  struct alignas(32) slot {
    send_operation* owner = nullptr;
    lease_block* lease = nullptr;
    memory_block* held = nullptr;  // The first, …
    struct {
      std::uint16_t more_held = 0;  // … and how many others.
      std::uint16_t index = 0;      // Within its operation.
      request_kind kind{};
      unsigned char special = 0;  // These bits.
    } state;
    /// It gives its owner a value.
    static constexpr unsigned char atomic = 1;
    /// Nothing but its number and its kind is to be known.
    [[nodiscard]] bool is_like_most() const noexcept {
      return state.more_held == 0 && state.special == 0;
    }
  };

  struct post_failure {
    std::uint32_t signaled_before;  // The last before these that had an entry of its own.
    int rc;
    ibv_send_wr* bad;
  };
  [[gnu::always_inline]] void probe_posted(request_kind kind,
                                           std::uint32_t sequence) const noexcept {
    CORDMA_PROBE3(post, num_, unsigned(kind), sequence);
  }
  /// The oldest.
  [[gnu::always_inline]] void count_succeeded(request_kind kind) noexcept {
    tally().completed(kind);
    CORDMA_PROBE5(complete, num_, unsigned(kind), head_, 0, 0);
  }
  [[nodiscard]] bool has_room(const send_operation& o) noexcept;
  /// Makes it, if need be. False: there is no memory.
  [[nodiscard]] bool has_long_ring() noexcept;
  /// What that depends on has changed.
  void set_at_once_max() noexcept {
    const bool waits = seldom_->is_room_kept || seldom_->refusal || !seldom_->waiting.empty();
    at_once_max_ = waits ? 0 : std::min(depth(), mask_ + 1);
  }
  void post_waiting() noexcept;
  /// Why a request is not taken; none: it is.
  struct refusal {
    errc code{};
    std::uint64_t value = 0;
    std::uint64_t limit = 0;
    const char* call = "post_send";
    [[nodiscard]] request_outcome to_outcome(std::uint32_t index = 0) const noexcept {
      return {.code = code, .call = call, .value = value, .limit = limit, .index = index};
    }
  };
  /// Before its memory is acquired.
  [[nodiscard]] refusal check(const wr_summary& request) const noexcept;
  /// Why a device would refuse this bind; none: it would not.
  [[nodiscard]] errc refusal_of(const bind_request& bind) const noexcept;
  /// Why the lease of a request, if any, does not allow it now. Asked when it is posted: it may
  /// have waited for room until then.
  [[nodiscard]] errc lease_refusal(const wr_summary& request) const noexcept;
  /// Acquires the memory of one request; of none of its slices when one is refused.
  [[nodiscard]] errc acquire(const wr_summary& request) noexcept;
  void release(std::span<const const_local_mr_slice> slices) noexcept;
  void release(std::span<const wr_summary> requests) noexcept {
    for (const wr_summary& request : requests) release(request.local);
  }
  /// Checks each request and acquires their memory, then posts or queues `o`.
  void admit(send_operation& o, const wr_list& list) noexcept;
  /// Posts what was admitted; there is room.
  static void post_admitted(send_operation& o, const wr_list& list) noexcept;
  void post_now(send_operation& o, const wr_list& list) noexcept;
  /// Whether a request that is awaited goes with those that the tasks after this one await.
  [[nodiscard]] bool batches(const wr_summary& request) const noexcept;
  void post_batched(send_operation& o, const wr_summary& request) noexcept;
  void begin(send_operation& o) noexcept;
  /// Gives each request a slot and makes its work request, chained. `ends_signaled`: the last has a
  /// completion entry; else each that asks for one.
  void fill(send_operation* owner, const wr_list& list, bool ends_signaled) noexcept;
  /// Gives the next request a slot, which owns its memory and its lease from then on.
  void give_slot(send_operation* owner, std::uint32_t index, const wr_summary& request) noexcept;
  /// Makes the work request of the last slot. Returns the sges that it uses.
  int fill_wr(const wr_summary& request, ibv_send_wr& wr, ibv_sge* sges) noexcept;
  /// What to add to the flags of the request of that number, which is posted next.
  unsigned entry_flag(std::uint32_t sequence, bool is_asked_for) noexcept;
  /// Returns 0, or what ibv_post_send(3) does.
  int ring(const wr_list& list, ibv_send_wr*& bad) noexcept;
  /// The device did not take all of them.
  void post_failed(send_operation& o, const post_failure& why, const ibv_send_wr& first) noexcept;
  /// What was queued, and the queue's own, has left the queue.
  static void end_own(send_operation& o) noexcept;
  [[nodiscard]] doorbell_batch& doorbells() const noexcept { return driver_.doorbells(); }
  [[nodiscard]] std::size_t index_of(std::uint32_t sequence) const noexcept {
    return (sequence - origin_) & mask_;
  }
  [[gnu::always_inline]] slot& at(std::uint32_t sequence) noexcept {
    return slots_[index_of(sequence)];
  }
  [[nodiscard]] std::size_t index_of(const slot& its) const noexcept {
    return std::size_t(&its - slots_);
  }
  memory_block** more_held_by(const slot& its) noexcept {
    return seldom_->more_held.data() + index_of(its) * (seldom_->sge_max - 1);
  }
  /// So many have ended. An empty ring begins anew, in the cache lines that were used last: here,
  /// where nobody waits for what is posted.
  void advance(std::uint32_t count) noexcept {
    head_ += count;
    if (head_ == tail_) origin_ = tail_;
  }
  /// The memory and the lease, if any, of a request that used them.
  [[gnu::always_inline]] void let_go_of_used(slot& by) noexcept {
    if (by.held != nullptr) {
      held_.let_go(*std::exchange(by.held, nullptr));
      if (by.state.more_held != 0) [[unlikely]]
        let_go_of_more(by);
    }
    if (by.lease != nullptr) [[unlikely]]
      std::exchange(by.lease, nullptr)->let_go();
  }
  [[gnu::noinline]] void let_go_of_more(slot& by) noexcept {
    for (std::uint16_t& more = by.state.more_held; more > 0; --more)
      held_.let_go(*more_held_by(by)[more - 1u]);
  }
  void ring_batch() noexcept;
  [[gnu::cold]] void batch_failed(const post_failure& why, const ibv_send_wr& first_wr,
                                  std::uint32_t count) noexcept;
  /// A doorbell that fails may leave room, and no entry to come that would tell of it.
  void ring_and_pump() noexcept;
  /// Of the last `count`, chained from `first` on, the device took those before the one that it
  /// names, if it does. Gives its index.
  std::uint32_t take_back(const post_failure& why, const ibv_send_wr& first,
                          std::uint32_t count) noexcept;
  static constexpr std::uint32_t unsignaled_max_of(std::uint32_t depth) noexcept {
    return (depth + 1) / 2;
  }
  /// The oldest has succeeded.
  void retire() noexcept;
  [[gnu::noinline]] void retire_special() noexcept;
  /// All before `end` have, of which the last is in flight.
  [[gnu::noinline]] void retire_to(std::uint32_t end) noexcept;
  /// The oldest has failed.
  void retire(const request_outcome& failure) noexcept;
  /// It never reaches the device.
  void end_unposted(send_operation& o, std::span<const wr_summary> requests,
                    const request_outcome& how) noexcept;

  struct seldom_used {
    seldom_used(verbs::protection_domain& pd, verbs::queue_pair& qp, bool has_atomics);
    /// Of the longer ring.
    [[nodiscard]] std::size_t places() const noexcept { return std::bit_ceil(depth_max); }

    verbs::queue_pair& qp;
    const std::uint32_t depth_max;  // For urgent ones, …
    std::uint32_t depth;            // … and for all others.
    const std::uint32_t sge_max;
    const std::uint32_t read_sge_max;  // Some devices gather more than they scatter.
    bool is_room_kept = false;
    std::optional<request_outcome> refusal;
    intrusive_list<send_operation> waiting;
    std::unique_ptr<slot[]> ring;              // Null: one slot was enough so far.
    std::vector<memory_block*> more_held;      // One less than `sge_max` a slot.
    std::vector<std::uint64_t> atomic_values;  // One a slot: where the device puts what was before.
    std::optional<verbs::memory_region> atomic_mr;
  };

  // Of a thousand connections none is in a near cache, nor its page table: what each request looks
  // at fills two cache lines, with the one slot of who posts one after another, beside those of
  // other queues.
  std::uint32_t head_ = sequence_first;    // The oldest in flight.
  std::uint32_t tail_ = sequence_first;    // The next to be posted.
  std::uint32_t origin_ = sequence_first;  // It has, or had, the first place of the ring.
  std::uint32_t mask_ = 0;                 // Of the ring: of one slot, or, once two were in …
  slot* slots_ = &only_slot_;              // … flight, of the power of two at or above the depth.
  held_memory& held_;
  ibv_qp* const native_;
  completion_queue_driver& driver_;
  std::uint64_t wr_id_base_ = 0;
  std::uint32_t at_once_max_;  // 0 while others wait, room is kept, or all is refused.
  std::uint32_t last_signaled_ = sequence_first - 1;

  std::uint32_t unsignaled_max_;
  const std::uint32_t message_max_bytes_;
  const std::uint32_t inline_max_ : 31;
  std::uint32_t keeps_receives_ : 1 = 0;  // The peer's, for `post_detached`.
  const std::uint32_t num_;
  const std::unique_ptr<seldom_used> seldom_;
  slot only_slot_;
};
static_assert(sizeof(send_queue) == 128);

[[gnu::always_inline]] inline void send_queue::retire() noexcept {
  slot& oldest = at(head_);
  if (!oldest.is_like_most()) [[unlikely]]
    return retire_special();
  count_succeeded(oldest.state.kind);
  let_go_of_used(oldest);
  send_operation* const owner = std::exchange(oldest.owner, nullptr);
  advance(1);
  if (owner != nullptr) owner->slot_ended();
}

}  // namespace cordma
