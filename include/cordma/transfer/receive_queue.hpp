#pragma once

#include <cordma/coro/semaphore.hpp>
#include <cordma/memory/slice.hpp>
#include <cordma/transfer/submission.hpp>
#include <cordma/transfer/transfer_counters.hpp>
#include <cordma/verbs/queue_pair.hpp>

#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <vector>

namespace cordma {

/// Slices that one receive buffer can consist of.
inline constexpr std::size_t receive_slices_max = 4;

/// A completed receive.
struct message {
  /// The buffer that was posted, as it was posted; the first `slice_count` count.
  std::array<local_mr_slice, receive_slices_max> slices{};
  std::uint32_t slice_count = 0;
  std::size_t size_bytes = 0;  ///< Bytes that arrived; for a WRITE with immediate: that it wrote.
  std::optional<std::uint32_t> immediate{};
  bool is_write = false;  ///< A WRITE with immediate: the bytes are where the peer wrote them.

  /// What arrived in the first (mostly: the only) slice; empty for a WRITE.
  [[nodiscard]] local_mr_slice payload() const {
    if (is_write || slice_count == 0) return {};
    return slices[0].first(std::min(size_bytes, slices[0].size_bytes()));
  }
};

/// The receive side of a queue pair: a ring of buffers in posting order, in which messages wait
/// until somebody takes them. Thread: the executor's. Cost: no allocation per receive.
class receive_queue {
 public:
  class next_message_op;
  class recv_op;

  /// What an operation in progress is linked by: it may be told of its end by a queue pair that is
  /// gone when its coroutine goes on to ask for the outcome.
  class guest : public list_hook<guest> {
   protected:
    guest() noexcept = default;
    guest(guest&&) noexcept = default;
    ~guest() = default;
    /// The queue goes away: touch it no more after this.
    virtual void orphan() noexcept = 0;
    static void orphan(std::optional<semaphore::acquire_op>& acquire) noexcept {
      // One that was stopped stays so; it needs its semaphore no more.
      if (!acquire->failed() || !acquire->take_result().is_cancelled()) acquire.reset();
    }

   private:
    friend class receive_queue;
  };

  /// Counts in `tally`, which outlives it.
  receive_queue(scheduler& home, verbs::protection_domain& pd, verbs::queue_pair& qp,
                transfer_tally& tally);
  receive_queue(const receive_queue&) = delete;
  receive_queue& operator=(const receive_queue&) = delete;
  ~receive_queue();

  /// Gives a buffer to the queue; a later message lands in it.
  /// \errors  errc::receive_queue_full, stale_slice, access_denied, too_many_slices,
  ///   wrong_protection_domain, disconnected; an errno of ibv_post_recv(3).
  void post(std::span<const local_mr_slice> buffer);
  next_message_op next_message() noexcept;
  template <std::size_t N>
  recv_op recv(const std::array<local_mr_slice, N>& buffer) noexcept;

  // As in `send_queue`.
  bool complete(std::uint32_t sequence, const ibv_wc& wc) noexcept;
  void end_all(const request_outcome& how) noexcept;
  void release_slots() noexcept;

  [[nodiscard]] std::uint32_t depth() const noexcept { return depth_; }
  [[nodiscard]] std::uint32_t posted() const noexcept { return tail_ - completed_ - flushed_; }
  /// Messages that nobody has taken yet.
  [[nodiscard]] std::uint32_t pending_messages() const noexcept { return completed_ - head_; }
  void set_wr_id_base(std::uint64_t base) noexcept { wr_id_base_ = base; }

 private:
  struct slot {
    message received;
    bool holds_memory = false;
  };

  slot& at(std::uint32_t sequence) noexcept { return slots_[sequence & mask_]; }
  std::optional<failure> try_post(std::span<const local_mr_slice> buffer) noexcept;
  errc hold(std::span<const local_mr_slice> buffer) noexcept;
  message take_message() noexcept;
  static void let_go(slot& s) noexcept;
  static failure gone(std::uint32_t qp_num) noexcept {
    return {.code = errc::closed, .call = "close", .object = {"qp", qp_num}};
  }
  /// Counts it, too.
  failure refused(errc code, fixed_text<240> detail = {}) noexcept;

  // Do not change once made.
  scheduler& home_;
  verbs::queue_pair& qp_;
  const std::uint32_t num_;
  const ibv_pd* pd_;
  transfer_tally& tally_;
  std::uint32_t depth_;
  std::uint32_t mask_;
  std::uint64_t wr_id_base_ = 0;

  // Sequence numbers: [head, completed) hold messages; of [completed, tail) the first `flushed`
  // came back without one, the rest are with the device.
  std::uint32_t head_ = sequence_first;
  std::uint32_t completed_ = sequence_first;
  std::uint32_t flushed_ = 0;
  std::uint32_t tail_ = sequence_first;
  std::vector<slot> slots_;
  semaphore room_;
  semaphore messages_{0};
  intrusive_list<guest> guests_;
};

/// Waits for the next message, whichever buffer it came in. A stop loses nothing: the message goes
/// to the next who asks. Messages come in the order the peer sent them.
class [[nodiscard]] receive_queue::next_message_op final : public operation_base<next_message_op>,
                                                           private receive_queue::guest {
 public:
  using value_type = message;
  bool start(waiter& w, environment env) noexcept {
    if (env.scheduler == nullptr) env.scheduler = &queue_->home_;
    queue_->guests_.push_back(*this);
    return acquire_->start(w, env);
  }
  [[nodiscard]] bool failed() const noexcept { return !acquire_ || acquire_->failed(); }
  message take() {
    if (failed()) [[unlikely]]
      return take_result().value();
    static_cast<void>(acquire_->take_result());
    return queue_->take_message();
  }
  result<message> take_result() noexcept {
    if (!acquire_) return gone(qp_num_);
    const result<void> outcome = acquire_->take_result();
    if (outcome.is_cancelled()) return count_cancelled();
    if (outcome.has_failure()) return outcome.failure();
    return queue_->take_message();
  }

 private:
  friend class receive_queue;
  explicit next_message_op(receive_queue& q) noexcept
      : queue_{&q}, qp_num_{q.num_}, acquire_{q.messages_.acquire()} {}
  void orphan() noexcept override {
    queue_ = nullptr;
    guest::orphan(acquire_);
  }
  result<message> count_cancelled() noexcept {
    if (queue_ != nullptr) queue_->tally_.cancelled(request_kind::receive);
    return cancelled_result;
  }

  receive_queue* queue_;  // Null: it is gone.
  std::uint32_t qp_num_;  // Kept here: the queue pair may be gone when the outcome is asked for.
  std::optional<semaphore::acquire_op> acquire_;
};

/// Posts a buffer, waiting for room in the queue (which a message that nobody has taken yet takes
/// up), and waits for the next message; which buffer that is in, `message::slices` says. A stop
/// leaves the buffer posted.
class [[nodiscard]] receive_queue::recv_op final : public operation_base<recv_op>,
                                                   private waiter,
                                                   private receive_queue::guest {
 public:
  using value_type = message;
  bool start(waiter& w, environment env) noexcept;
  [[nodiscard]] bool failed() const noexcept {
    return refused_.has_value() || (is_posted_ ? next_.failed() : !room_ || room_->failed());
  }
  message take() {
    if (refused_ || !is_posted_) [[unlikely]]
      return take_result().value();
    return next_.take();
  }
  result<message> take_result() noexcept;

  recv_op(recv_op&& other) noexcept
      : waiter{&on_room},
        queue_{other.queue_},
        buffer_{other.buffer_},
        slice_count_{other.slice_count_},
        qp_num_{other.qp_num_},
        room_{std::move(other.room_)},
        next_{std::move(other.next_)} {}

 private:
  friend class receive_queue;
  recv_op(receive_queue& q, std::span<const local_mr_slice> buffer) noexcept;
  static std::coroutine_handle<> on_room(waiter& self) noexcept;
  bool go_on(waiter& parent) noexcept;
  bool post_and_wait(waiter& parent) noexcept;
  void orphan() noexcept override {
    queue_ = nullptr;
    guest::orphan(room_);
  }

  receive_queue* queue_;  // Null: it went while this waited for room.
  std::array<local_mr_slice, receive_slices_max> buffer_;
  std::size_t slice_count_;
  std::uint32_t qp_num_;
  std::optional<semaphore::acquire_op> room_;  // Only when there was none at once.
  next_message_op next_;
  waiter_ref parent_;
  environment environment_{};
  bool is_posted_ = false;
  std::optional<failure> refused_;
};

template <std::size_t N>
receive_queue::recv_op receive_queue::recv(const std::array<local_mr_slice, N>& buffer) noexcept {
  static_assert(N <= receive_slices_max, "a receive buffer has at most receive_slices_max slices");
  return recv_op{*this, buffer};
}

}  // namespace cordma
