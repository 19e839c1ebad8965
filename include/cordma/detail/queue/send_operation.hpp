#pragma once

#include <cordma/base/error.hpp>
#include <cordma/detail/base/export.hpp>
#include <cordma/detail/base/intrusive_list.hpp>
#include <cordma/queue/work_request.hpp>

#include <cstdint>
#include <span>

namespace cordma {

class send_queue;

/// Compact outcome of a work request: an empty one is success. Operations keep it instead of a
/// whole `failure`. docs/decisions/0018-currencies-of-failure.md gives the reasons.
struct CORDMA_EXPORT request_outcome {
  std::error_code code{};  ///< Zero if the request succeeded.
  const char* call = "";
  std::uint64_t value = 0;  ///< The offending value.
  std::uint64_t limit = 0;  ///< The limit for `value`.
  std::uint32_t vendor = 0;
  std::uint32_t index = 0;  ///< Index, in the batch, of the first request that failed.

  /// Makes the outcome of a call that returned `rc`: 0, or an errno of either sign.
  [[nodiscard]] static request_outcome of_errno(int rc, const char* call) noexcept {
    return {.code = {rc < 0 ? -rc : rc, std::system_category()}, .call = call};
  }
  [[nodiscard]] bool has_failed() const noexcept { return code.value() != 0; }
  [[nodiscard]] failure to_failure(std::uint32_t qp_num) const noexcept;
};

/// An outcome with the queue pair's number, because the queue pair may be gone when the failure is
/// read.
struct CORDMA_EXPORT request_failure {
  request_outcome how;
  std::uint32_t qp_num;
  std::uint32_t receive_queue = 0;  ///< The one that the request named, over XRC.

  [[nodiscard]] failure to_failure() const noexcept;
};

/// Requests to be posted with one doorbell, and storage for what the device reads.
struct wr_list {
  std::span<const wr_summary> requests;
  ibv_send_wr* wrs;  ///< One element per request.
  ibv_sge* sges;     ///< One element per slice, and one per atomic.
};

/// One or several work requests that are posted together. The queue notifies the operation of their
/// end.
///
/// An operation is `idle` until it is posted, and `queued` while it waits for room, in FIFO order.
/// It is `in_flight` from the doorbell until all its slots have ended, and then `ended`.
/// `send_queue` makes every change except `recall`.
///
/// The slots of an operation in flight point to it. Moving the operation updates them. Destroying
/// it detaches it: the slots keep the memory until the device is done with it.
/// \thread the executor's.
class CORDMA_EXPORT send_operation : public list_hook<send_operation> {
 public:
  /// Destroys an operation that has left the queue; only such a one is destroyed through its base.
  virtual ~send_operation();

  [[nodiscard]] bool has_ended() const noexcept { return state_ == state::ended; }
  /// Returns true while the operation waits for room.
  [[nodiscard]] bool is_queued() const noexcept { return state_ == state::queued; }
  /// Returns true if one of the requests failed or was refused.
  [[nodiscard]] bool has_failed() const noexcept { return has_failed_; }

  /// Posts the requests now, or queues them behind those that wait for room. A queued operation
  /// that is dropped is still posted when there is room.
  void post() noexcept;
  /// Posts as `post` does, and may use a reserved slot (`send_queue::reserve`).
  void post_urgent() noexcept {
    is_urgent_ = true;
    post();
  }

 protected:
  using list_user = void (*)(send_operation&, const wr_list&) noexcept;

  /// `values_before` stores the results of atomics, one word per request; null if there is none.
  send_operation(send_queue& queue, std::uint16_t count, std::uint64_t* values_before) noexcept
      : queue_{&queue}, values_before_{values_before}, count_{count} {}
  send_operation(send_operation&& other, std::uint64_t* values_before) noexcept;

  /// Calls `use` once with the requests, which must not change before they are posted.
  virtual void list_requests(list_user use) noexcept = 0;
  /// Notifies that the operation has ended, mostly in the middle of a reap. The override may
  /// destroy the operation and post others.
  virtual void on_end() noexcept {}

  // The following functions are for the awaiter.
  /// Posts the requests and signals the last. An operation that waits for room can be recalled.
  void post_awaited() noexcept;
  /// Awaits an operation that was posted. If it is still queued, its last request becomes signaled.
  /// If no CQE will report its end, it ends now.
  void await_posted() noexcept;
  /// Takes an awaited operation that waits for room out of the queue and makes it idle again. An
  /// operation that was posted, not awaited, stays.
  void recall() noexcept;
  /// Rings the common doorbell for the group, if any.
  void ring_now() noexcept;
  void count_cancelled() noexcept;

  [[nodiscard]] bool is_idle() const noexcept { return state_ == state::idle; }
  [[nodiscard]] bool is_known_to_queue() const noexcept { return state_ >= state::queued; }
  [[nodiscard]] bool is_queued_handle() const noexcept { return is_queued() && is_handle_; }
  [[nodiscard]] bool was_moved() const noexcept { return count_ == 0; }
  [[nodiscard]] failure to_failure() const noexcept { return failure_.to_failure(); }
  /// Returns the queue, which may be gone once the operation has ended.
  [[nodiscard]] send_queue& queue() const noexcept { return *queue_; }
  /// Returns the sequence number of the first slot.
  [[nodiscard]] std::uint32_t sequence() const noexcept { return first_; }
  /// Passes ownership to the queue, which deletes the operation once it is posted.
  void give_to_queue() noexcept { is_queues_own_ = true; }
  /// Leaves the queue, before destruction.
  void leave() noexcept;

 private:
  friend class send_queue;
  /// States from `queued` on mean that the queue knows the operation.
  enum class state : unsigned char { idle, ended, queued, in_flight };

  void detach() noexcept;

  // The queue calls the following functions.
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
  void note_receive_queue() noexcept;

  send_queue* queue_;
  std::uint64_t* values_before_;
  std::uint32_t first_ = 0;    // Sequence number of its first slot.
  std::uint32_t pending_ = 0;  // Slots that have not ended.
  std::uint16_t count_;
  state state_ = state::idle;
  bool has_failed_ = false;
  bool is_handle_ = false;      // Posted, not awaited: it goes on when no task waits.
  bool is_urgent_ = false;      // The operation may use a reserved slot.
  bool is_signaled_ = false;    // The operation is awaited, so its last request is signaled.
  bool is_queues_own_ = false;  // The operation was dropped while queued.
  union {
    request_failure failure_;  // Valid if the operation has failed.
  };
};

}  // namespace cordma
