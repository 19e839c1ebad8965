#pragma once

#include <cordma/base/error.hpp>
#include <cordma/detail/base/export.hpp>
#include <cordma/detail/base/intrusive_list.hpp>
#include <cordma/queue/work_request.hpp>

#include <cstdint>
#include <span>

namespace cordma {

class send_queue;

/// How a work request ended, in few words: operations keep this rather than a whole `failure`.
struct CORDMA_EXPORT request_outcome {
  std::error_code code{};  ///< None: the request succeeded.
  const char* call = "";
  std::uint64_t value = 0;  ///< What was wrong, …
  std::uint64_t limit = 0;  ///< … and what it is measured against.
  std::uint32_t vendor = 0;
  std::uint32_t index = 0;  ///< The first request of the batch that failed.

  [[nodiscard]] failure to_failure(std::uint32_t qp_num) const noexcept;
};

/// An outcome with the queue pair's number: the queue pair may be gone when the failure is asked
/// for.
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

/// One or several work requests that are posted together, and whom the queue tells of their end.
///
/// States: `idle` until it is posted; `queued` while it waits for room, in FIFO order; `in_flight`
/// from the doorbell until all its slots have ended; `ended`. `send_queue` makes every change but
/// `recall`. The slots point here while it is in flight. Moving the operation tells them.
/// Destroying it detaches it: the slots keep the memory until the device is done with it.
/// \thread the executor's.
class CORDMA_EXPORT send_operation : public list_hook<send_operation> {
 public:
  /// Only one that has left the queue is destroyed through its base.
  virtual ~send_operation();

  [[nodiscard]] bool has_ended() const noexcept { return state_ == state::ended; }
  /// Whether it waits for room.
  [[nodiscard]] bool is_queued() const noexcept { return state_ == state::queued; }
  /// Whether one of its requests failed, or was refused.
  [[nodiscard]] bool has_failed() const noexcept { return has_failed_; }

  /// Posts the requests now, or queues them behind those that wait for room. Dropped while queued,
  /// the operation is posted in its turn all the same.
  void post() noexcept;
  /// As `post`, and a reserved slot will do (`send_queue::reserve`).
  void post_urgent() noexcept {
    is_urgent_ = true;
    post();
  }

 protected:
  using list_user = void (*)(send_operation&, const wr_list&) noexcept;

  /// `values_before`: storage for what atomics give, one word a request. Null: it has no atomic.
  send_operation(send_queue& queue, std::uint16_t count, std::uint64_t* values_before) noexcept
      : queue_{&queue}, values_before_{values_before}, count_{count} {}
  send_operation(send_operation&& other, std::uint64_t* values_before) noexcept;

  /// Calls `use` once with the requests, which must not change before they are posted.
  virtual void list_requests(list_user use) noexcept = 0;
  /// The operation has ended, mostly in the middle of a reap. May destroy it, and post others.
  virtual void on_end() noexcept {}

  // For who awaits it.
  /// Posts the requests, the last of which has a CQE. Waits for room, it can be recalled.
  void post_awaited() noexcept;
  /// Of one that was posted: has its last request signaled, if it is still queued. When no CQE will
  /// tell of its end, the operation ends now.
  void await_posted() noexcept;
  /// Leaves the queue when it waits for room and nobody posted it for good: it is idle again.
  void recall() noexcept;
  /// Gives the device what waits for a common doorbell.
  void ring_now() noexcept;
  void count_cancelled() noexcept;

  [[nodiscard]] bool is_idle() const noexcept { return state_ == state::idle; }
  [[nodiscard]] bool is_known_to_queue() const noexcept { return state_ >= state::queued; }
  [[nodiscard]] bool is_queued_handle() const noexcept { return is_queued() && is_handle_; }
  [[nodiscard]] bool was_moved() const noexcept { return count_ == 0; }
  [[nodiscard]] failure to_failure() const noexcept { return failure_.to_failure(); }
  /// May be gone once the operation has ended.
  [[nodiscard]] send_queue& queue() const noexcept { return *queue_; }
  /// The number of its first slot.
  [[nodiscard]] std::uint32_t sequence() const noexcept { return first_; }
  /// The queue owns it from now on, and deletes it once it is posted.
  void give_to_queue() noexcept { is_queues_own_ = true; }
  /// Leaves the queue, before it is destroyed.
  void leave() noexcept;

 private:
  friend class send_queue;
  /// From `queued` on the queue knows it.
  enum class state : unsigned char { idle, ended, queued, in_flight };

  void detach() noexcept;

  // What the queue tells.
  void slot_ended() noexcept {
    if (--pending_ == 0) finish();
  }
  void slot_failed(request_outcome failure, std::uint32_t index) noexcept;
  void end(const request_outcome& failure) noexcept;
  void finish() noexcept {
    state_ = state::ended;
    on_end();
  }
  void note(const request_outcome& failure) noexcept;

  send_queue* queue_;
  std::uint64_t* values_before_;
  std::uint32_t first_ = 0;    // Sequence number of its first slot.
  std::uint32_t pending_ = 0;  // Slots that have not ended.
  std::uint16_t count_;
  state state_ = state::idle;
  bool has_failed_ = false;
  bool is_handle_ = false;      // Posted for good: it goes on when nobody waits for it.
  bool is_urgent_ = false;      // It may have a reserved slot.
  bool is_signaled_ = false;    // It is awaited, so the last of its requests has a CQE.
  bool is_queues_own_ = false;  // Dropped while queued.
  union {
    request_failure failure_;  // If it has failed.
  };
};

}  // namespace cordma
