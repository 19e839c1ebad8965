#pragma once

#include <cordma/transfer/submission.hpp>
#include <cordma/transfer/work_request.hpp>
#include <cordma/verbs/memory_region.hpp>
#include <cordma/verbs/queue_pair.hpp>

#include <memory>
#include <span>
#include <vector>

namespace cordma {

/// The send side of a queue pair: a ring of slots in posting order. A reliable connection completes
/// in that order, so a slot's sequence number is both its index and its generation, and one
/// completion ends every unsignaled request before it.
/// Thread: the executor's. Cost: no allocation and no system call of its own per request.
class send_queue {
 public:
  /// `qp` may be in any state; `message_max_bytes` is the port's.
  send_queue(scheduler& home, verbs::protection_domain& pd, verbs::queue_pair& qp,
             std::size_t message_max_bytes);
  send_queue(const send_queue&) = delete;
  send_queue& operator=(const send_queue&) = delete;
  ~send_queue();

  /// What the driver found in a completion entry. True: it was a failure, of this request; else
  /// `pump` may find room for others.
  bool complete(std::uint32_t sequence, const ibv_wc& wc) noexcept;
  /// Posts what waits for room, as far as there is any.
  void pump() noexcept;
  /// The queue pair is in ERROR, where a request has a completion entry when it failed or asked for
  /// one: posts one that asks, if the last that is in flight did not, so that all of them end.
  void flush_all() noexcept;
  /// Ends what waits for room with `how`.
  void end_waiting(const request_outcome& how) noexcept;
  /// Ends everything with `how`; what is in flight keeps its slots and its memory.
  void end_all(const request_outcome& how) noexcept;
  /// The device is done with this queue: `ibv_destroy_qp` has returned.
  void release_slots() noexcept;
  /// From now on every request is refused with `how`.
  void refuse(const request_outcome& how) noexcept { refusal_ = how; }

  /// The last `slots` of the queue are for urgent requests only: of those, as many find room at
  /// once, however many others wait. Before anything is posted; less than the depth.
  void reserve(std::uint32_t slots) noexcept {
    CORDMA_ASSERT(in_flight() == 0 && slots < depth_, "slots are reserved before they are used");
    reserved_ = slots;
  }

  /// Requests, but for urgent ones, that it takes.
  [[nodiscard]] std::uint32_t depth() const noexcept { return depth_ - reserved_; }
  /// Requests that can be posted together. A run of unsignaled ones that nothing ends can be half
  /// the queue long; a batch that needs more than the rest of it would wait for ever.
  [[nodiscard]] std::uint32_t batch_max() const noexcept { return depth() / 2 + 1; }
  [[nodiscard]] std::uint32_t in_flight() const noexcept { return tail_ - head_; }
  /// Whether one more, that is not urgent, would be posted at once.
  [[nodiscard]] bool has_room() const noexcept { return waiting_.empty() && in_flight() < depth(); }
  /// Requests ever given to the device, modulo 2^32.
  [[nodiscard]] std::uint32_t posted_total() const noexcept { return tail_ - sequence_first; }
  [[nodiscard]] bool is_idle() const noexcept { return in_flight() == 0 && waiting_.empty(); }
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

  // For `submission` and what derives from it.
  request_outcome hold(const request_shape& request) noexcept;
  void let_go(const request_shape& request) noexcept;
  /// Fills what is common to all kinds: slices, flags.
  void prepare(const request_shape& request, ibv_send_wr& wr, ibv_sge* sges) noexcept;
  void post(submission& s, std::span<ibv_send_wr> wrs,
            std::span<const request_shape> requests) noexcept;

  /// A request that nobody awaits, with slices and flags filled in; there is room. It has a
  /// completion entry when it asks for one, and as often as the queue needs one. `memory`, if any,
  /// is held until it has ended. Returns 0 or an errno.
  [[nodiscard]] int post_alone(ibv_send_wr& wr, memory_block* memory) noexcept;

 private:
  friend class submission;
  struct slot {
    submission* owner = nullptr;
    std::uint32_t index = 0;  // Within its submission.
    std::uint16_t holds = 0;  // Memory blocks held.
    bool is_atomic = false;
    lease_block* lease = nullptr;
  };

  [[nodiscard]] bool has_room(const submission& s) const noexcept;
  [[nodiscard]] request_outcome refused_by_lease(
      std::span<const request_shape> requests) const noexcept;
  slot& at(std::uint32_t sequence) noexcept { return slots_[sequence & mask_]; }
  memory_block** holds_of(std::uint32_t sequence) noexcept {
    return &holds_[std::size_t{sequence & mask_} * sge_max_];
  }
  void enqueue(submission& s) noexcept;
  void retire(const request_outcome& how) noexcept;
  void adopt(const submission& from, submission* to) noexcept;
  /// Whether a signaled request at or after `sequence` is in flight.
  [[nodiscard]] bool will_complete(std::uint32_t sequence) const noexcept {
    return std::int32_t(last_signaled_ - sequence) >= 0;
  }
  void occupy(std::uint32_t sequence, submission& s, std::uint32_t index, ibv_send_wr& wr,
              const request_shape& request) noexcept;
  void number(std::uint32_t sequence, ibv_send_wr& wr) noexcept;
  request_outcome refused(errc code, std::uint64_t value, std::uint64_t limit) const noexcept;

  // Do not change once made.
  scheduler& home_;
  verbs::queue_pair& qp_;
  const ibv_pd* pd_;
  std::uint32_t depth_;
  std::uint32_t reserved_ = 0;
  std::uint32_t mask_;  // Of the ring, the power of two at or above the depth.
  std::uint32_t sge_max_;
  std::uint32_t read_sge_max_;  // Some devices gather more than they scatter.
  std::uint32_t inline_max_;
  std::size_t message_max_bytes_;
  std::uint64_t wr_id_base_ = 0;

  // Change with each request.
  std::uint32_t head_ = sequence_first;  // The oldest in flight.
  std::uint32_t tail_ = sequence_first;  // The next to be posted.
  std::uint32_t last_signaled_ = sequence_first - 1;
  std::vector<slot> slots_;
  std::vector<memory_block*> holds_;          // `sge_max_` a slot.
  std::vector<std::uint64_t> atomic_values_;  // One a slot: where the device puts the value before.
  std::unique_ptr<verbs::memory_region> atomic_mr_;  // After the values: goes before them.
  intrusive_list<submission> waiting_;
  std::optional<request_outcome> refusal_;
};

}  // namespace cordma
