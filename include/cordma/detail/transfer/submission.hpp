#pragma once

#include <cordma/coro/operation.hpp>
#include <cordma/detail/base/assert.hpp>
#include <cordma/detail/base/probe.hpp>
#include <cordma/transfer/transfer_counters.hpp>

#include <cstdint>
#include <optional>

namespace cordma {

class completion_queue_driver;
class send_queue;

/// Where the sequence numbers of a queue pair's requests start: so near their wrap at 2^32 that
/// every program of some length passes it, and no bug can hide behind it.
inline constexpr std::uint32_t sequence_first = std::uint32_t(-200);

/// What no `wr_id` begins with.
inline constexpr std::uint64_t no_id_base = ~std::uint64_t{0};

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

/// One or several requests for a send queue that are posted together: waits for room in FIFO order,
/// is posted with one doorbell, and ends when all its slots have. The slots point here until then;
/// moving it tells them, destroying it detaches it from them, which ends nothing: the slots keep
/// the memory until the device is done with it.
class submission : public list_hook<submission> {
 public:
  [[nodiscard]] bool has_ended() const noexcept { return state_ == state::ended; }
  /// Whether it waits for room.
  [[nodiscard]] bool is_queued() const noexcept { return state_ == state::queued; }
  [[nodiscard]] bool failed() const noexcept { return trouble_ != 0; }
  [[nodiscard]] scheduler* own_scheduler() const noexcept;

 protected:
  /// From `queued` on the queue knows it.
  enum class state : unsigned char { idle, ended, queued, in_flight };

  /// Why `take` would throw: this wait was stopped (a handle can be awaited again), …
  static constexpr unsigned char stop_bit = 1;
  /// … or one of them failed.
  static constexpr unsigned char failure_bit = 2;
  [[nodiscard]] bool has_failure() const noexcept { return (trouble_ & failure_bit) != 0; }
  [[nodiscard]] bool was_stopped() const noexcept { return (trouble_ & stop_bit) != 0; }
  /// Without trouble. Both are said at once, as they are asked for: a load of both that comes soon
  /// would wait until a store of one has left the processor.
  void become(state s) noexcept {
    state_ = s;
    trouble_ = 0;
  }
  void forget_stop() noexcept { trouble_ &= static_cast<unsigned char>(~stop_bit); }

  inline submission(send_queue& queue, std::uint16_t count) noexcept;
  submission(submission&& other) noexcept;
  /// Who derives from it has left the queue, and nobody waits.
  virtual ~submission() {
    detail::assume(!list_hook<submission>::is_linked());
    detail::assume(!is_awaited_);
  }

  /// Gives it to the queue: afterwards it is queued, in flight, or has ended.
  void submit() noexcept;
  /// An operation's `start` of what was posted before it was awaited, or awaited before.
  bool start_posted(waiter& w, const environment& env) noexcept;
  /// The end of an operation's `start`: it is queued or in flight, or has ended.
  bool wait(waiter& w, const environment& env) noexcept;
  /// Who waits is not told: it is what destroys this.
  void forget_waiter() noexcept;

  /// Somebody waits for it.
  virtual void ask_for_entry() noexcept {}
  /// Checks every request and takes hold of its memory; when one is refused, of none.
  virtual std::optional<request_outcome> hold() noexcept = 0;
  virtual void let_go() noexcept = 0;
  /// Of one that owns itself.
  virtual void destroy() noexcept = 0;
  /// Builds the work requests and hands them to `send_queue::post`.
  virtual void post_now() noexcept = 0;
  [[nodiscard]] virtual request_kind kind_of(std::uint32_t index) const noexcept = 0;
  /// Where to make it when the first of them fails: they are not posted any more.
  [[nodiscard]] virtual request_failure* place_of_failure() noexcept = 0;
  /// A stop ends this wait. True.
  [[gnu::cold]] bool stopped() noexcept;
  void detach() noexcept;

  send_queue* queue_;
  std::uint64_t* values_before_;  // Those of atomics, with one place for each request.
  std::uint32_t first_ = 0;       // Sequence number of its first slot.
  std::uint32_t pending_ = 0;     // Slots that have not ended.
  std::uint16_t count_;
  state state_ = state::idle;
  unsigned char trouble_ = 0;   // These bits: asked for each time.
  bool is_awaited_ = false;     // `wait` was called, and it was not told since.
  bool is_handle_ = false;      // Posted: it goes on when its wait is stopped.
  bool is_urgent_ = false;      // It may have a reserved slot.
  bool tells_at_once_ = false;  // In the middle of a reap.
  bool owns_itself_ = false;    // A handle dropped while queued: deleted once posted.

 private:
  friend class send_queue;
  /// Of who waits. A handle outlives those who await it: a coroutine that is destroyed meanwhile
  /// takes itself out.
  struct wait_place : stop_callback {
    explicit wait_place(submission& s) noexcept : stop_callback{&on_stop}, owner{s} {}
    submission& owner;
    waiter_ref who;
    scheduler* home = nullptr;
  };
  inline void wake() noexcept;
  static void on_stop(stop_callback& self) noexcept;
  inline void slots_ended(std::uint32_t count) noexcept;
  void slot_failed(request_outcome failure, std::uint32_t index) noexcept;
  void note(const request_outcome& failure) noexcept;
  void end(const request_outcome& failure) noexcept;
  inline void finish() noexcept;
  void cannot_end() noexcept;

  union {
    wait_place wait_;  // While it is awaited: mostly its end is found by looking.
  };
};

}  // namespace cordma
