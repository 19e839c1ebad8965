#pragma once

#include <cordma/coro/operation.hpp>
#include <cordma/queue/work_request.hpp>

#include <cstdint>
#include <span>

namespace cordma {

class send_queue;

/// How a work request ended, in few words: operations keep this rather than a whole `failure`.
struct request_outcome {
  std::error_code code{};  ///< None: it succeeded.
  const char* call = "";
  std::uint64_t value = 0;  ///< What was wrong, …
  std::uint64_t limit = 0;  ///< … and what it is measured against.
  std::uint32_t vendor = 0;
  std::uint32_t index = 0;  ///< The first request of the batch that failed.

  [[nodiscard]] failure to_failure(std::uint32_t qp_num) const noexcept;
};

/// The same, and whose it was: the queue pair may be gone when it is asked for.
struct request_failure {
  request_outcome how;
  std::uint32_t qp_num;

  [[nodiscard]] failure to_failure() const noexcept { return how.to_failure(qp_num); }
};

/// Requests to be posted with one doorbell, and storage for what the device reads of them.
struct wr_list {
  std::span<const wr_summary> requests;
  ibv_send_wr* wrs;  ///< One for each request.
  ibv_sge* sges;     ///< One for each slice, and one for each atomic.
};

/// One or several work requests that are posted together, and what awaits their end.
///
/// States: `idle` until it starts; `queued` while it waits for room, in FIFO order; `in_flight`
/// from the doorbell until all its slots have ended; `ended`. `send_queue` makes every change but
/// those of a stop. The slots point here while it is in flight. Moving the operation tells them.
/// Destroying it detaches it: the slots keep the memory until the device is done with it.
/// Thread: the executor's.
class send_operation : public list_hook<send_operation> {
 public:
  /// Only one that has left the queue is destroyed through its base.
  virtual ~send_operation();

  [[nodiscard]] bool has_ended() const noexcept { return state_ == state::ended; }
  /// Whether it waits for room.
  [[nodiscard]] bool is_queued() const noexcept { return state_ == state::queued; }
  [[nodiscard]] bool failed() const noexcept { return error_bits_ != 0; }
  [[nodiscard]] scheduler* own_scheduler() const noexcept;

  /// Posts it, unless it was posted before, and has `w` told when it has ended. True: it has.
  bool start(waiter& w, const environment& env) noexcept;
  /// Posts it now, or queues it behind those that wait for room; nobody awaits it yet.
  void post() noexcept;
  /// The same, and a reserved slot will do (`send_queue::reserve`).
  void post_urgent() noexcept {
    is_urgent_ = true;
    post();
  }
  /// Resumes the waiter in the middle of a reap, or of the queue pair's failure, rather than in an
  /// iteration of the executor. The waiter may destroy this operation, and post others.
  void notify_inline() noexcept { notifies_inline_ = true; }

 protected:
  using list_user = void (*)(send_operation&, const wr_list&) noexcept;

  /// `values_before`: storage for what atomics give, one word a request. Null: it has no atomic.
  send_operation(send_queue& queue, std::uint16_t count, std::uint64_t* values_before) noexcept
      : queue_{&queue}, values_before_{values_before}, count_{count} {}
  send_operation(send_operation&& other, std::uint64_t* values_before) noexcept;

  /// Calls `use` once with the requests, which must not change before they are posted.
  virtual void list_requests(list_user use) noexcept = 0;

  [[nodiscard]] bool is_known_to_queue() const noexcept { return state_ >= state::queued; }
  [[nodiscard]] bool is_queued_handle() const noexcept { return is_queued() && is_handle_; }
  [[nodiscard]] bool was_stopped() const noexcept { return (error_bits_ & stop_bit) != 0; }
  [[nodiscard]] failure to_failure() const noexcept { return failure_.to_failure(); }
  /// The queue owns it from now on, and deletes it once it is posted.
  void give_to_queue() noexcept { is_queues_own_ = true; }
  /// The waiter is not told: it is what destroys this operation, or is gone.
  void forget_waiter() noexcept;
  /// Leaves the queue, before it is destroyed.
  void leave() noexcept;

 private:
  friend class send_queue;
  /// From `queued` on the queue knows it.
  enum class state : unsigned char { idle, ended, queued, in_flight };
  /// This wait was stopped; a handle can be awaited again.
  static constexpr unsigned char stop_bit = 1;
  /// One of the requests failed.
  static constexpr unsigned char failure_bit = 2;
  [[nodiscard]] bool has_failure() const noexcept { return (error_bits_ & failure_bit) != 0; }
  void forget_stop() noexcept { error_bits_ &= static_cast<unsigned char>(~stop_bit); }
  /// A handle outlives those who await it: a coroutine that is destroyed meanwhile takes itself
  /// out.
  struct wait_state : stop_callback {
    explicit wait_state(send_operation& o) noexcept : stop_callback{&on_stop}, owner{o} {}
    send_operation& owner;
    waiter_ref who;
    scheduler* resumes_on = nullptr;
  };

  bool start_posted(waiter& w, const environment& env) noexcept;
  /// The end of `start` when it has not ended. False.
  bool wait(waiter& w, const environment& env) noexcept;
  /// A stop ends this wait. True.
  bool stopped() noexcept;
  static void on_stop(stop_callback& self) noexcept;
  /// It is in flight, and no completion will tell of its end.
  void cannot_end() noexcept;
  void detach() noexcept;
  void count_cancelled() noexcept;

  // What the queue tells.
  void slot_ended() noexcept {
    if (--pending_ == 0) finish();
  }
  void slot_failed(request_outcome failure, std::uint32_t index) noexcept;
  void end(const request_outcome& failure) noexcept;
  void finish() noexcept;
  void wake() noexcept;
  void note(const request_outcome& failure) noexcept;

  send_queue* queue_;
  std::uint64_t* values_before_;
  std::uint32_t first_ = 0;    // Sequence number of its first slot.
  std::uint32_t pending_ = 0;  // Slots that have not ended.
  std::uint16_t count_;
  state state_ = state::idle;
  unsigned char error_bits_ = 0;
  bool is_awaited_ = false;   // `wait_` is there.
  bool is_handle_ = false;    // Posted: it goes on when its wait is stopped.
  bool is_urgent_ = false;    // It may have a reserved slot.
  bool is_signaled_ = false;  // It is awaited, so the last of its requests has a CQE.
  bool notifies_inline_ = false;
  bool is_queues_own_ = false;  // A handle that was dropped while queued.
  union {
    wait_state wait_;
  };
  union {
    request_failure failure_;  // If it has one.
  };
};

}  // namespace cordma
