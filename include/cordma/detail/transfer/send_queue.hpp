#pragma once

#include <cordma/detail/base/probe.hpp>
#include <cordma/detail/transfer/completion_queue_driver.hpp>
#include <cordma/detail/transfer/doorbell_batch.hpp>
#include <cordma/detail/transfer/held_memory.hpp>
#include <cordma/detail/transfer/submission.hpp>
#include <cordma/transfer/transfer_counters.hpp>
#include <cordma/transfer/work_request.hpp>
#include <cordma/verbs/memory_region.hpp>
#include <cordma/verbs/queue_pair.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <memory>
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
  /// and `held`, of that and of `pd`, outlive it.
  send_queue(completion_queue_driver& driver, held_memory& held, verbs::protection_domain& pd,
             verbs::queue_pair& qp, std::size_t message_max_bytes);
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
  void flush_all() noexcept;
  /// Ends what waits for room with `how`.
  void end_waiting(const request_outcome& how) noexcept;
  /// Ends everything with `how`; what is in flight keeps its slots and its memory.
  void end_all(const request_outcome& how) noexcept;
  /// The device is done with this queue: `ibv_destroy_qp` has returned.
  void release_slots() noexcept;
  /// From now on what takes a receive of the peer's is refused, but for the owner's `post_alone`.
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

  // For `submission` and what derives from it. Inline, so that what is known of a request when it
  // is compiled is asked then.
  /// Whether that many can be posted now, ahead of nobody, and only the last needs an entry.
  [[nodiscard]] bool has_room_for(std::uint32_t count) const noexcept {
    return in_flight() + count <= at_once_max_ &&
           (count == 1 || tail_ + count - 2 - last_signaled_ < unsignaled_max_);
  }
  /// Whether there is room for that many now, in the longer ring that it gets: once.
  [[nodiscard]] bool gets_slots_for(std::uint32_t count) noexcept;
  /// Whether a request is like most, and nothing is wrong with it but, perhaps, its memory. False:
  /// `hold` may find nothing wrong.
  [[nodiscard]] bool is_like_most(const request_shape& request) const noexcept;
  /// Takes hold of the memory of one that is like most. False: it holds nothing.
  [[nodiscard]] bool try_hold(const request_shape& request) noexcept;
  /// Checks each, and takes hold of their memory; of none if one is refused.
  std::optional<request_outcome> hold(std::span<const request_shape> requests) noexcept;
  /// It waits for room no longer, and holds nothing.
  void withdraw(submission& s) noexcept;
  void let_go(const request_shape& request) noexcept {
    for (const const_local_mr_slice& slice : request.local)
      if (slice.is_held()) held_.let_go(*slice.block());
  }
  void let_go(std::span<const request_shape> requests) noexcept {
    for (const request_shape& request : requests) let_go(request);
  }
  /// Why a device would refuse this bind; nothing: it would not.
  [[nodiscard]] errc refusal_of(const bind_request& bind) const noexcept;
  // What is held is posted so: none has a `lease_refusal`, `begin_post`, `clear` and `place` each,
  // `ring`, and `count_posted` each; or one, if the queue `batches`, by `batch`.
  [[nodiscard]] errc lease_refusal(const request_shape& request) const noexcept;
  /// They never reach the device: one of them has.
  void post_refused(submission& s, std::span<const request_shape> requests) noexcept;
  /// Whether one that is awaited may go with those that the tasks after this one await.
  [[nodiscard, gnu::always_inline]] bool batches(const request_shape& request) const noexcept {
    return doorbells().is_worth_while() && doorbells().takes(*this, is_long(request));
  }
  /// Of one slice, and no bind.
  template <class Request>
  void batch(submission& s, const Request& request, const request_shape& shape) noexcept;
  /// How far it has come.
  struct posting {
    submission& owner;
    std::uint32_t signaled_before;  // The last that had an entry of its own.
    std::uint32_t sequence;         // Of the next.
  };
  [[nodiscard, gnu::always_inline]] posting begin_post(submission& s,
                                                       std::uint32_t count) noexcept {
    doorbells().passes(*this);
    return begin(s, count);
  }
  /// Fills what is common to all kinds, but for numbers and where an atomic's value goes.
  template <bool IsLikeMost, bool HasOneSlice = false>
  void describe(const request_shape& request, ibv_send_wr& wr, ibv_sge* sges) noexcept;
  /// The next request gets a slot, and the slot its memory and its lease.
  template <bool IsLikeMost>
  void give_slot(posting& p, const request_shape& request) noexcept;
  /// What to add to the flags of the request of that number, which is posted next.
  unsigned entry_flag(std::uint32_t sequence, bool is_asked_for) noexcept;
  /// Sets what is different each time.
  void number(std::uint32_t sequence, request_kind kind, ibv_send_wr& wr) noexcept;
  /// All of it, of the next request, with a slot. If it `IsLikeMost` none of its slices is empty.
  /// It `may_have_entry` but where the last of a batch has one for it.
  template <bool IsLikeMost, bool HasOneSlice = false>
  void place(posting& p, const request_shape& request, ibv_send_wr& wr, ibv_sge* sges,
             bool may_have_entry) noexcept;
  /// Where one that `has_one_slice` is described, alone.
  [[nodiscard, gnu::always_inline]] described_request& describes(request_kind kind) noexcept {
    return driver_.describes(kind);
  }
  /// Returns 0, or what ibv_post_send(3) does.
  [[nodiscard]] int ring(std::uint32_t count, ibv_send_wr& first, ibv_send_wr*& bad) noexcept;
  /// Of requests of these kinds, the number of the first.
  template <auto Kinds>
  [[gnu::always_inline]] void count_posted(std::uint32_t first) noexcept {
    constexpr bool are_alike = std::ranges::count(Kinds, Kinds[0]) == std::ssize(Kinds);
    if constexpr (are_alike) tally().posted(Kinds[0], Kinds.size());
    for (std::uint32_t i = 0; i < Kinds.size(); ++i) {
      if constexpr (!are_alike) tally().posted(Kinds[i]);
      probe_posted(Kinds[i], first + i);
    }
  }
  struct post_failure {
    std::uint32_t signaled_before;
    int rc;
    ibv_send_wr* bad;
  };
  /// The device did not take all of them.
  void post_failed(submission& s, const post_failure& why, const ibv_send_wr& first) noexcept;

  /// SENDs and binds that nobody awaits, chained, with all but their numbers filled in; there is
  /// room. They have completion entries when they ask for them, and as often as the queue needs
  /// one. `memory`, if any, is held until the last has ended. Returns 0 or an errno.
  [[nodiscard]] int post_alone(ibv_send_wr& first, memory_block* memory) noexcept;

 private:
  friend class submission;
  friend class doorbell_batch;
  /// A free one has no owner, no lease and no memory.
  struct alignas(32) slot {
    submission* owner = nullptr;
    lease_block* lease = nullptr;
    memory_block* held = nullptr;  // The first, …
    struct {
      std::uint16_t more_held = 0;  // … and how many others.
      std::uint16_t index = 0;      // Within its submission.
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

  /// Of one slice at most.
  [[nodiscard]] static bool is_long(const request_shape& request) noexcept {
    return !request.local.empty() &&
           request.local[0].size_bytes() > doorbell_batch::short_bytes_max;
  }
  [[gnu::always_inline]] void probe_posted(request_kind kind,
                                           std::uint32_t sequence) const noexcept {
    CORDMA_PROBE3(post, num_, unsigned(kind), sequence);
  }
  /// The oldest.
  [[gnu::always_inline]] void count_succeeded(request_kind kind) noexcept {
    tally().completed(kind);
    CORDMA_PROBE5(complete, num_, unsigned(kind), head_, 0, 0);
  }
  [[nodiscard]] bool has_room(const submission& s) noexcept;
  /// Makes it, if need be. False: there is no memory.
  [[nodiscard]] bool has_long_ring() noexcept;
  /// What that depends on has changed.
  void set_at_once_max() noexcept {
    const bool waits = seldom_->is_room_kept || seldom_->refusal || !seldom_->waiting.empty();
    at_once_max_ = waits ? 0 : std::min(depth(), mask_ + 1);
  }
  void post_waiting() noexcept;
  /// Why a lease that a request names does not allow it now. Asked when it is posted: it may have
  /// waited for room until then.
  [[nodiscard]] errc refused_by_lease(const remote_mr_slice& remote,
                                      verbs::access wanted) const noexcept;
  [[nodiscard, gnu::always_inline]] transfer_tally& tally() const noexcept {
    return driver_.tally();
  }
  [[nodiscard, gnu::always_inline]] doorbell_batch& doorbells() const noexcept {
    return driver_.doorbells();
  }
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
  [[nodiscard, gnu::always_inline]] bool try_hold(memory_block& block,
                                                  std::uint32_t generation) noexcept {
    return held_.try_hold(block, generation);
  }
  [[nodiscard, gnu::always_inline]] posting begin(submission& s, std::uint32_t count) noexcept {
    s.first_ = tail_;
    s.pending_ = count;
    s.state_ = submission::state::in_flight;
    return {s, last_signaled_, tail_};
  }
  [[nodiscard, gnu::always_inline]] posting begin_batched(submission& s) noexcept {
    if (doorbells().is_empty()) [[unlikely]]
      doorbells().begin(*this, last_signaled_);
    return begin(s, 1);
  }
  void end_batched(ibv_send_wr& wr, const request_shape& shape) noexcept;
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
  void enqueue(submission& s) noexcept;
  std::optional<request_outcome> hold(const request_shape& request) noexcept;
  /// Holds what it needs. Why it is not taken; nothing: it is.
  std::optional<request_outcome> admit(submission& s) noexcept;
  /// The oldest has succeeded.
  void retire() noexcept;
  [[gnu::noinline]] void retire_special() noexcept;
  /// All before `end` have, of which the last is in flight.
  [[gnu::noinline]] void retire_to(std::uint32_t end) noexcept;
  /// The oldest has failed.
  void retire(const request_outcome& failure) noexcept;
  /// Those of its slots that have not ended belong to `to`; null: nobody is told of their end.
  void adopt(const submission& from, submission* to) noexcept;
  template <bool IsLikeMost>
  void keep_memory(slot& its, const request_shape& request) noexcept;
  /// Whether a signaled request at or after `sequence` is in flight.
  [[nodiscard]] bool will_complete(std::uint32_t sequence) const noexcept {
    return std::int32_t(last_signaled_ - sequence) >= 0;
  }
  request_outcome refused(errc code, std::uint64_t value, std::uint64_t limit) const noexcept;
  /// It never reaches the device.
  void end_unposted(submission& s, const request_outcome& how) noexcept;
  void count_refused(const submission& s, std::uint32_t from) noexcept;

  struct seldom_used {
    seldom_used(verbs::protection_domain& pd, verbs::queue_pair& qp);
    /// Of the longer ring.
    [[nodiscard]] std::size_t places() const noexcept { return std::bit_ceil(depth_max); }

    verbs::queue_pair& qp;
    const std::uint32_t depth_max;  // For urgent ones, …
    std::uint32_t depth;            // … and for all others.
    const std::uint32_t sge_max;
    const std::uint32_t read_sge_max;  // Some devices gather more than they scatter.
    bool is_room_kept = false;
    std::optional<request_outcome> refusal;
    intrusive_list<submission> waiting;
    std::unique_ptr<slot[]> ring;              // Null: one slot was enough so far.
    std::vector<memory_block*> more_held;      // One less than `sge_max` a slot.
    std::vector<std::uint64_t> atomic_values;  // One a slot: where the device puts what was before.
    verbs::memory_region atomic_mr;
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
  std::uint32_t keeps_receives_ : 1 = 0;  // The peer's, for `send_alone`.
  const std::uint32_t num_;
  const std::unique_ptr<seldom_used> seldom_;
  slot only_slot_;
};
static_assert(sizeof(send_queue) == 128);

inline submission::submission(send_queue& queue, std::uint16_t count) noexcept
    : queue_{&queue}, count_{count} {}

[[gnu::always_inline]] inline void submission::wake() noexcept {
  if (!is_awaited_) return;
  is_awaited_ = false;
  waiter* const told = wait_.who.take();
  scheduler* const home = wait_.home;
  std::destroy_at(&wait_);
  if (told == nullptr) [[unlikely]]
    return;
  CORDMA_PROBE3(wake, queue_->num_, first_, told);
  if (tells_at_once_) [[unlikely]] {
    queue_->doorbells().home().forbid_inline_polls();  // Perhaps amid one.
    told->done().resume();
  } else {
    home->schedule(*told);
  }
}

[[gnu::always_inline]] inline void submission::finish() noexcept {
  state_ = state::ended;
  wake();
}

[[gnu::always_inline]] inline void submission::slots_ended(std::uint32_t count) noexcept {
  pending_ -= count;
  if (pending_ == 0) finish();
}

[[gnu::always_inline]] inline bool send_queue::is_like_most(
    const request_shape& request) const noexcept {
  // Each is unlikely: g++ multiplies what it guesses, and makes short, not quick, what is seldom.
  if (request.takes_receive && keeps_receives_) [[unlikely]]
    return false;
  const std::span<const const_local_mr_slice> local = request.local;
  if (request.window != nullptr && refusal_of(*request.window) != errc{}) [[unlikely]]
    return false;
  std::size_t bytes = request.is_atomic() ? sizeof(std::uint64_t) : 0;
  for (std::size_t i = 0; i < local.size(); ++i) {
    if (local.size() > 1 && local[i].empty()) [[unlikely]]
      return false;
    if (request.window == nullptr) bytes += local[i].size_bytes();
  }
  if (local.size() > 1 &&
      local.size() > (request.is_read() ? seldom_->read_sge_max : seldom_->sge_max)) [[unlikely]]
    return false;
  if ((request.is_read() || request.is_atomic()) && seldom_->qp.rd_atomic_max() == 0) [[unlikely]]
    return false;
  // Too long, or nothing.
  if (request.window == nullptr && !local.empty() && bytes - 1 >= message_max_bytes_) [[unlikely]]
    return false;
  if (const remote_mr_slice* const remote = request.remote) {
    if (bytes > remote->size_bytes()) [[unlikely]]
      return false;
    if (request.is_atomic() && (remote->size_bytes() != bytes || remote->address() % bytes != 0))
        [[unlikely]]
      return false;
  }
  return true;
}

[[gnu::always_inline]] inline bool send_queue::try_hold(const request_shape& request) noexcept {
  const std::span<const const_local_mr_slice> local = request.local;
  for (std::size_t i = 0; i < local.size(); ++i) {
    memory_block* const block = local[i].block();
    if (block == nullptr) continue;
    if (try_hold(*block, local[i].generation())) [[likely]] {
      if (verbs::allows(block->access(), request.local_access)) [[likely]]
        continue;
      held_.let_go(*block);
    }
    for (std::size_t held = 0; held < i; ++held)
      if (local[held].block() != nullptr) held_.let_go(*local[held].block());
    return false;
  }
  return true;
}

[[gnu::always_inline]] inline unsigned send_queue::entry_flag(std::uint32_t sequence,
                                                              bool is_asked_for) noexcept {
  // A long run without an entry would keep its slots: nothing could end them.
  if (!is_asked_for && sequence - last_signaled_ < unsignaled_max_) return 0;
  last_signaled_ = sequence;
  return IBV_SEND_SIGNALED;
}

[[gnu::always_inline]] inline errc send_queue::lease_refusal(
    const request_shape& request) const noexcept {
  if (request.remote == nullptr || request.remote->lease() == nullptr) return {};
  return refused_by_lease(*request.remote, request.is_atomic() ? verbs::access::remote_atomic
                                           : request.is_read() ? verbs::access::remote_read
                                                               : verbs::access::remote_write);
}

template <bool IsLikeMost, bool HasOneSlice>
[[gnu::always_inline]] inline void send_queue::describe(const request_shape& request,
                                                        ibv_send_wr& wr, ibv_sge* sges) noexcept {
  std::size_t bytes = 0;
  int used = 0;
  if (request.is_atomic()) {
    sges[used++] = {.addr = 0, .length = sizeof(std::uint64_t), .lkey = seldom_->atomic_mr.lkey()};
  } else if (request.window == nullptr) {
    for (std::size_t i = 0; i < request.local.size(); ++i) {
      const const_local_mr_slice& slice = request.local[i];
      if (!IsLikeMost && slice.empty()) continue;  // Some devices read a length of 0 as 2 GiB.
      sges[used++] = {.addr = reinterpret_cast<std::uint64_t>(slice.bytes().data()),
                      .length = std::uint32_t(slice.size_bytes()),
                      .lkey = slice.lkey()};
      bytes += slice.size_bytes();
    }
  }
  unsigned flags = request.send_flags;
  const bool is_empty = IsLikeMost ? request.local.empty() : bytes == 0;
  if (request.can_be_inline && !is_empty && bytes <= inline_max_) flags |= IBV_SEND_INLINE;
  if constexpr (!HasOneSlice) {
    wr.sg_list = sges;
    wr.num_sge = used;
  }
  wr.send_flags = flags;
}

template <bool IsLikeMost>
[[gnu::always_inline]] inline void send_queue::give_slot(posting& p,
                                                         const request_shape& request) noexcept {
  slot& its = at(p.sequence);
  its.owner = &p.owner;
  its.state.index = std::uint16_t(p.sequence - p.owner.first_);
  its.state.kind = request.kind;
  its.state.special = request.is_atomic() ? slot::atomic : 0;
  if (request.remote != nullptr && request.remote->lease() != nullptr) {
    its.lease = request.remote->lease();
    its.lease->used();
  }
  keep_memory<IsLikeMost>(its, request);
}

template <bool IsLikeMost>
[[gnu::always_inline]] inline void send_queue::keep_memory(slot& its,
                                                           const request_shape& request) noexcept {
  memory_block* first_held = nullptr;
  for (std::size_t i = 0; i < request.local.size(); ++i) {
    const const_local_mr_slice& slice = request.local[i];
    if (IsLikeMost ? slice.block() == nullptr : !slice.is_held()) continue;
    memory_block* const block = slice.block();
    if (first_held == nullptr) {
      its.held = first_held = block;
    } else {
      more_held_by(its)[its.state.more_held++] = block;
    }
  }
}

[[gnu::always_inline]] inline void send_queue::number(std::uint32_t sequence, request_kind kind,
                                                      ibv_send_wr& wr) noexcept {
  if (kind == request_kind::atomic)
    wr.sg_list->addr = reinterpret_cast<std::uint64_t>(&seldom_->atomic_values[index_of(sequence)]);
  wr.wr_id = wr_id_base_ | sequence;
}

template <bool IsLikeMost, bool HasOneSlice>
[[gnu::always_inline]] inline void send_queue::place(posting& p, const request_shape& request,
                                                     ibv_send_wr& wr, ibv_sge* sges,
                                                     bool may_have_entry) noexcept {
  give_slot<IsLikeMost>(p, request);
  describe<IsLikeMost, HasOneSlice>(request, wr, sges);
  if (may_have_entry) wr.send_flags |= entry_flag(p.sequence, request.is_signaled());
  number(p.sequence++, request.kind, wr);
}

template <class Request>
[[gnu::always_inline]] inline void send_queue::batch(submission& s, const Request& request,
                                                     const request_shape& shape) noexcept {
  posting p = begin_batched(s);
  described_request& one = doorbells().next();
  clear_rest(one.wr);
  request.fill(one.wr);
  place<true, true>(p, shape, one.wr, &one.sge, true);
  end_batched(one.wr, shape);
}

[[gnu::always_inline]] inline void send_queue::end_batched(ibv_send_wr& wr,
                                                           const request_shape& shape) noexcept {
  probe_posted(shape.kind, tail_++);
  doorbells().add(wr, shape.kind, shape.takes_receive || is_long(shape));
  if (doorbells().is_complete()) [[unlikely]]
    ring_and_pump();
}

[[gnu::always_inline]] inline int send_queue::ring(std::uint32_t count, ibv_send_wr& first,
                                                   ibv_send_wr*& bad) noexcept {
  tail_ += count;
  return ibv_post_send(native_, &first, &bad);
}

[[gnu::always_inline]] inline void send_queue::retire() noexcept {
  slot& oldest = at(head_);
  if (!oldest.is_like_most()) [[unlikely]]
    return retire_special();
  count_succeeded(oldest.state.kind);
  let_go_of_used(oldest);
  submission* const owner = std::exchange(oldest.owner, nullptr);
  advance(1);
  if (owner != nullptr) owner->slots_ended(1);
}

}  // namespace cordma
