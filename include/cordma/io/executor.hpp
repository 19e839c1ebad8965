#pragma once

#include <cordma/coro/scope.hpp>
#include <cordma/coro/sleep.hpp>
#include <cordma/coro/sync_wait.hpp>
#include <cordma/detail/base/counter.hpp>
#include <cordma/detail/base/export.hpp>
#include <cordma/detail/io/mailbox.hpp>
#include <cordma/detail/io/poller.hpp>
#include <cordma/io/reactor.hpp>

#include <memory>
#include <optional>

namespace cordma {

/// The kernel's interface by which an executor waits for file descriptors.
enum class io_backend : unsigned char {
  automatic,  ///< io_uring; epoll where the kernel or a container has none, or forbids it.
  io_uring,
  epoll,
};

struct executor_options {
  /// Null: CLOCK_MONOTONIC. With another clock the executor checks the timers repeatedly, and only
  /// a reactor given below is told when the next one is due.
  const time_source* clock = nullptr;
  /// Unset: as the environment variable CORDMA_IO_BACKEND says (`automatic`, `io_uring`, `epoll`),
  /// else `automatic`.
  std::optional<io_backend> backend{};
  /// Null: one of the backend.
  std::unique_ptr<cordma::reactor> reactor{};
  /// Depth of the io_uring's submission queue; bounds a batch, not what can be waited for.
  unsigned ring_entries = 256;
};

/// Counts what an executor did since it was made.
struct executor_counters {
  std::uint64_t iterations = 0;     ///< Event-loop iterations.
  std::uint64_t waits = 0;          ///< Times that the executor blocked in the kernel.
  std::uint64_t yields = 0;         ///< Times that it let other threads run while it spun.
  std::uint64_t ready_resumed = 0;  ///< Waiters taken from the ready list.
  std::uint64_t posted = 0;         ///< Calls run for `post`.
  std::uint64_t enters = 0;         ///< System calls of its reactor: `reactor::enters`.
};

/// One thread's event loop. It resumes what is ready, fires timers, asks pollers, waits for file
/// descriptors, and runs what other threads post. An idle executor uses no CPU.
///
/// The executor outlives what waits on it.
/// \thread the one that first runs it, also for everything that uses the executor; `post`: any.
class CORDMA_EXPORT executor : public scheduler {
 public:
  /// \errors no memory or descriptors, or io_uring was asked for and is forbidden or missing; the
  ///   message names the cause and the way out. EINVAL: a wrong CORDMA_IO_BACKEND.
  explicit executor(executor_options options = {});
  /// Returns true during a call of `run` or a step; otherwise nothing that was scheduled happens.
  [[nodiscard]] bool is_running() const noexcept { return occupied_; }
  ~executor() override;

  /// Runs an operation or task to its end, then continues until the closer is empty too. Gives the
  /// operation's value or throws what it threw. Asserts in a nested call, on any thread but the
  /// first that called it, and in the child of a fork (docs/lifetime.md).
  template <operation Op>
  value_of<Op> run(Op&& op) {
    const occupation here{*this};
    detail::end_flag ended;
    if (!op.start(ended, environment{this, {}})) serve(&ended.is_set());
    serve(nullptr);
    return op.take();
  }

  /// State of a run that is stepped, after a step.
  enum class run_state : unsigned char {
    working,   ///< There is more to do now.
    spinning,  ///< There is nothing to do, but a poller forbids blocking: nothing will notify.
    blocked,   ///< `run` would block, until the deadline or until the reactor's `wait` would end.
    ended,     ///< `take` gives the outcome.
  };
  struct step_outcome {
    run_state state = run_state::working;
    time_point deadline = time_point::max();  ///< The first timer's; the end of time: none.
  };
  template <operation Op>
  class stepped_run;

  /// Makes a run that the caller continues, one event-loop iteration at a time: several executors
  /// can share a thread. Nothing happens before the first `step`.
  template <operation Op>
  [[nodiscard]] stepped_run<Op> begin(Op&& op) {
    return stepped_run<Op>{*this, std::forward<Op>(op)};
  }

  /// Runs `f()` in one of the next iterations, in the order of the calls. `f` must not throw: the
  /// program would be terminated. A posted call that never runs is destroyed with the executor.
  /// \errors `std::bad_alloc`.
  /// \thread any; the executor must outlive the call, not only `f`.
  /// \cost one `new`, one compare-exchange, and a system call only when the executor sleeps.
  template <class F>
  void post(F&& f) {
    if (mailbox_.leave(std::forward<F>(f))) reactor_->wake();
  }

  void post_stop(const std::shared_ptr<stop_source>& stopped) override {
    post([stopped] { stopped->request_stop(); });
  }

  /// Destroys posted calls that have not run: they may own objects that must be destroyed early.
  void discard_posted() noexcept { mailbox_.discard_all(); }

  /// Scope in which dropped connections end; `run` returns when it is empty. A task that is spawned
  /// here must not throw: its error would stop the others.
  [[nodiscard]] scope& closer() noexcept { return closer_; }

  /// The following functions work in any coroutine; `cordma::sleep_for` needs one with a scheduler.
  [[nodiscard]] detail::sleep_op sleep_for(time_span length) noexcept { return {length, this}; }
  [[nodiscard]] detail::sleep_op sleep_until(time_point deadline) noexcept {
    return {deadline, this};
  }

  /// Asks `p` in every event-loop iteration, until it is destroyed or unlinked.
  void add(poller& p) noexcept { pollers_.push_back(p); }
  /// Asks `p`, after the pollers of `add`, in every event-loop iteration. Nothing wakes the
  /// executor for `p`, so the executor does not block while there is one.
  void add_restless(poller& p) noexcept { restless_.push_back(p); }
  /// Lets other threads run (sched_yield(2)) after each iteration that found nothing while a poller
  /// spins: whom this thread waits for may need its processor. A `group` with more ranks on this
  /// host than processors turns it on.
  void yield_while_spinning(bool on) noexcept { yields_ = on; }
  [[nodiscard]] cordma::reactor& reactor() noexcept { return *reactor_; }
  /// Returns the present counters. \thread any.
  [[nodiscard]] executor_counters counters() const noexcept;

 private:
  /// A call of `run`, or a step, inside of which this executor is the thread's.
  class occupation {
   public:
    explicit occupation(executor& of);
    occupation(occupation&&) = delete;
    ~occupation();

   private:
    executor& of_;
    scheduler* outer_;
  };

  /// Runs event-loop iterations until `*ended`; if `ended` is null, until the closer is empty.
  void serve(const bool* ended) noexcept;
  template <class IsOver>
  void serve_until(IsOver is_over) noexcept;
  step_outcome step(const bool* ended) noexcept;
  [[nodiscard]] run_state idle_state() noexcept;
  bool iterate() noexcept;
  void serve_timers() noexcept;
  bool spin() noexcept;
  void fire_timers() noexcept;
  bool poll_all() noexcept;
  bool complete_inline() noexcept override;
  void block() noexcept;
  [[nodiscard]] bool may_block() noexcept;
  void set_alarm() noexcept;

  // Other threads write this member.
  detail::mailbox mailbox_;
  // The executor's thread writes the following members.
  // The clock is not the kernel's: the alarm is no reliable sign that a timer is due.
  const bool own_clock_;
  const bool takes_alarm_;  // The reactor's alarm follows the executor's clock.
  bool occupied_ = false;
  bool yields_ = false;        // While a poller spins.
  bool spins_ = false;         // A poller forbade blocking when there last was no work.
  int inline_polls_left_ = 0;  // Timers and the kernel come next when it is negative.
  // Address in the storage of the owning thread; null: no thread has run the executor.
  const void* owner_ = nullptr;
  std::uint32_t process_;  // Process that made it: a fork's child has no ring of its own.
  time_point alarm_ = time_point::max();  // The reactor's alarm, until it fires.
  struct {
    counter iterations;
    counter waits;
    counter yields;
    counter ready_resumed;
    counter posted;
  } counters_;
  std::unique_ptr<cordma::reactor> reactor_;
  intrusive_list<poller> pollers_;
  intrusive_list<poller> restless_;
  scope closer_{*this};
};

/// Run of an operation or task that `executor::begin` made. Destroying the run destroys the
/// operation, wherever it is; what ends in the closer then continues with the executor's next run.
/// \thread the executor's, which outlives the run.
template <operation Op>
class [[nodiscard]] executor::stepped_run {
 public:
  stepped_run(executor& on, Op&& op) : executor_{on}, op_{std::forward<Op>(op)} {}
  stepped_run(stepped_run&&) = delete;

  /// Handles what has come to the reactor, does one event-loop iteration, and never blocks. The
  /// first step starts the operation. The run has ended when the closer is empty, too.
  /// \errors what the start of the operation throws.
  step_outcome step() {
    const occupation here{executor_};
    if (!std::exchange(is_started_, true) && op_.start(flag_, environment{&executor_, {}}))
      ended_ = nullptr;
    return executor_.step(ended_);
  }
  /// Gives the operation's value or throws what it threw. Call it once, after the end.
  value_of<Op> take() { return op_.take(); }

 private:
  executor& executor_;
  detail::end_flag flag_;
  const bool* ended_ = &flag_.is_set();  // Null: the operation ended when it started.
  bool is_started_ = false;
  Op op_;  // Destroyed first.
};

}  // namespace cordma
