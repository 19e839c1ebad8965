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

namespace cordma {

struct executor_options {
  /// Null: CLOCK_MONOTONIC. With another clock the timers are looked at time and again, and only a
  /// reactor given below is told when the next one is due.
  const time_source* clock = nullptr;
  /// Null: io_uring.
  std::unique_ptr<cordma::reactor> reactor{};
  /// Of the submission queue of the io_uring; a bound on a batch, not on what can be waited for.
  unsigned ring_entries = 256;
};

/// What an executor did since it was made.
struct executor_counters {
  std::uint64_t turns = 0;
  std::uint64_t waits = 0;          ///< How often it blocked in the kernel.
  std::uint64_t ready_resumed = 0;  ///< Waiters taken from the ready list.
  std::uint64_t posted = 0;         ///< Calls run for `post`.
  std::uint64_t enters = 0;         ///< System calls of its reactor: `reactor::enters`.
};

/// One thread's event loop: resumes what is ready, fires timers, asks pollers, waits for file
/// descriptors, and runs what other threads post. It belongs to the thread that first runs it, and
/// so does everything that hangs on it; `post` alone is for all. It outlives what waits on it.
/// Idle, it burns no CPU.
class CORDMA_EXPORT executor : public scheduler {
 public:
  /// \errors io_uring is forbidden or missing: names the cause and the way out.
  explicit executor(executor_options options = {});
  /// Whether it is in a call of `run`: else nothing that it has scheduled happens.
  [[nodiscard]] bool is_running() const noexcept { return occupied_; }
  ~executor() override;

  /// Runs an operation or task to its end, then goes on until the closer is empty too. Gives the
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

  /// Runs `f()` in one of the next turns, in the order of the calls. `f` must not throw (the
  /// program would be terminated). What is posted and never run is destroyed with the executor.
  /// \errors `std::bad_alloc`. \thread any; the executor must outlive the call, not only `f`.
  /// \cost one `new`, one compare-exchange, and a system call only when the executor sleeps.
  template <class F>
  void post(F&& f) {
    if (mailbox_.leave(std::forward<F>(f))) reactor_->wake();
  }

  /// Destroys what was posted and has not run: it may own what must go before other things.
  void discard_posted() noexcept { mailbox_.discard_all(); }

  /// Where dropped connections end their lives: `run` returns when it is empty. What is spawned
  /// here keeps its errors to itself: one that throws would stop the others.
  [[nodiscard]] scope& closer() noexcept { return closer_; }

  /// Work in any coroutine; `cordma::sleep_for` only in those that have a scheduler.
  [[nodiscard]] detail::sleep_op sleep_for(time_span length) noexcept { return {length, this}; }
  [[nodiscard]] detail::sleep_op sleep_until(time_point deadline) noexcept {
    return {deadline, this};
  }

  /// Asks `p` in every turn, until it is destroyed or unlinked.
  void add(poller& p) noexcept { pollers_.push_back(p); }
  /// The same, behind those, of one that nothing wakes it for: while any is there it does not
  /// block.
  void add_restless(poller& p) noexcept { restless_.push_back(p); }
  [[nodiscard]] cordma::reactor& reactor() noexcept { return *reactor_; }
  /// Now. \thread any.
  [[nodiscard]] executor_counters counters() const noexcept;

 private:
  class occupation {
   public:
    explicit occupation(executor& home);
    occupation(const occupation&) = delete;
    occupation& operator=(const occupation&) = delete;
    ~occupation() { home_.occupied_ = false; }

   private:
    executor& home_;
  };

  /// Turns until `*ended`, or, when that is null, until the closer is empty.
  void serve(const bool* ended) noexcept;
  template <class IsOver>
  void serve_until(IsOver is_over) noexcept;
  bool turn() noexcept;
  bool spin() noexcept;
  void fire_timers() noexcept;
  bool poll_all() noexcept;
  bool poll_inline() noexcept override;
  static bool poll_each(intrusive_list<poller>& all) noexcept;
  void block() noexcept;
  [[nodiscard]] bool may_block() noexcept;
  void set_alarm() noexcept;

  // Written by other threads.
  mailbox mailbox_;
  // The owner's.
  const bool own_clock_;    // Not the kernel's: the alarm cannot be trusted to tell.
  const bool takes_alarm_;  // The reactor's alarm follows our clock.
  bool enabled_ = false;
  bool occupied_ = false;
  bool spins_ = false;  // The last time that nothing was to do, a poller would not let it block.
  const void* owner_ = nullptr;  // An address in the storage of its thread; null: none has run it.
  std::uint32_t process_;        // The one that made it: a fork's child has no ring of its own.
  time_point alarm_ = time_point::max();  // What the reactor was told last, until it fires.
  struct {
    counter turns;
    counter waits;
    counter ready_resumed;
    counter posted;
  } counters_;
  std::unique_ptr<cordma::reactor> reactor_;
  intrusive_list<poller> pollers_;
  intrusive_list<poller> restless_;
  scope closer_{*this};
};

}  // namespace cordma
