#include <cordma/io/executor.hpp>

#include "io_backend.hpp"

#include "base/fork.hpp"

#include <sched.h>

namespace cordma {
namespace {

/// Iterations between two polls of the kernel and the clock, while there is work: an iteration is
/// short, or its work is long.
constexpr unsigned iterations_per_kernel_poll = 8;
/// About the number of polls during the round trip of a message.
constexpr unsigned polls_per_iteration_max = 64;
/// Polls before an executor that yields lets others run (docs/performance-collectives.md).
constexpr unsigned polls_per_yield = 32;
constexpr int inline_polls_max = iterations_per_kernel_poll * polls_per_iteration_max;
/// An await that polls inline saves an iteration, which takes as long as this many polls.
constexpr int inline_polls_per_await = 8;

/// Returns an address that no other thread has while this thread lives.
const void* this_thread() noexcept {
  thread_local const char own{};
  return &own;
}

bool is_foreign(const time_source* clock) noexcept {
  return clock != nullptr && clock != &time_source::monotonic();
}

/// Asserts that the process is the maker: a fork's child would share the kernel's side of the ring.
void check_process(std::uint32_t made_in) noexcept {
  CORDMA_ASSERT(made_in == detail::process_epoch(),
                "a runtime does not survive fork: the child makes one of its own, or calls exec");
}

/// Calls `f` with each poller. Each goes back to its list before the call, so that any may be added
/// or destroyed meanwhile.
template <class F>
void for_each(intrusive_list<poller>& all, F f) noexcept {
  intrusive_list<poller> round;
  for (round.splice_back(all); !round.empty();) {
    poller& next = round.pop_front();
    all.push_back(next);
    f(next);
  }
}

bool poll_each(intrusive_list<poller>& all) noexcept {
  bool progress = false;
  for_each(all, [&](poller& next) { progress |= next.poll() > 0; });
  return progress;
}

}  // namespace

executor::executor(executor_options options)
    : scheduler{options.clock != nullptr ? *options.clock : time_source::monotonic()},
      own_clock_{is_foreign(options.clock)},
      takes_alarm_{!own_clock_ || options.reactor != nullptr},
      process_{detail::process_epoch()},
      reactor_{options.reactor != nullptr ? std::move(options.reactor) : make_reactor(options)} {}

executor::~executor() {
  CORDMA_ASSERT(!occupied_, "executor destroyed while it runs");
  discard_posted();  // The closer must still be there for what the calls own.
}

executor::occupation::occupation(executor& of) : of_{of} {
  CORDMA_ASSERT(!of.occupied_, "executor::run called while it runs: await instead");
  check_process(of.process_);
  if (of.owner_ == nullptr) {
    of.reactor_->enable();
    of.owner_ = this_thread();
  }
  CORDMA_ASSERT(of.owner_ == this_thread(), "an executor belongs to the thread that ran it first");
  of.occupied_ = true;
  outer_ = run_on_this_thread(&of);
}

executor::occupation::~occupation() {
  of_.occupied_ = false;
  run_on_this_thread(outer_);
}

bool executor::poll_all() noexcept {
  const bool progress = pollers_.has_one() ? pollers_.front().poll() > 0 : poll_each(pollers_);
  if (restless_.empty()) [[likely]]
    return progress;
  return poll_each(restless_) || progress;
}

/// Polls once, or until something comes if the executor would spin or checks conditions.
bool executor::complete_inline() noexcept {
  inline_polls_left_ -= inline_polls_per_await;
  if (inline_polls_left_ < 0) return false;
  while (may_complete_inline() && inline_polls_left_ >= 0) {
    --inline_polls_left_;
    if (!poll_all() && (!spins_ || yields_) && restless_.empty()) break;
  }
  return true;
}

/// Asks a spinning poller again at once, several times, because the rest of an iteration takes
/// longer than a poll.
bool executor::spin() noexcept {
  const unsigned polls = yields_ ? polls_per_yield : polls_per_iteration_max;
  for (unsigned i = 1; i < polls && !has_ready(); ++i)
    if (poll_all()) return true;
  return false;
}

inline bool executor::iterate() noexcept {
  check_process(process_);  // A coroutine of the last iteration may have forked.
  counters_.iterations.add();
  if (const std::size_t calls = mailbox_.run_all(); calls > 0) counters_.posted.add(calls);
  const bool progress = poll_all() || (spins_ && spin());
  // Ready coroutines come first, so that the peer works on what they send during the rest of the
  // iteration.
  const std::size_t resumed = run_ready();
  if (resumed > 0) counters_.ready_resumed.add(resumed);
  // Posted work may have completed: poll before anything is armed.
  return progress || resumed > 0 || has_ready();
}

inline void executor::serve_timers() noexcept {
  check_process(process_);
  fire_timers();
  if (takes_alarm_) set_alarm();
}

void executor::serve(const bool* ended) noexcept {
  if (ended != nullptr) {
    serve_until([ended] { return *ended; });
  } else {
    serve_until([this] { return closer_.running() == 0; });
  }
}

template <class IsOver>
inline void executor::serve_until(IsOver is_over) noexcept {
  while (!is_over()) {
    unsigned iterations = 0;
    bool more_to_do;
    inline_polls_left_ = inline_polls_max;
    do more_to_do = iterate();
    while (more_to_do && ++iterations < iterations_per_kernel_poll && inline_polls_left_ >= 0 &&
           !is_over());
    if (is_over()) break;
    serve_timers();
    if (more_to_do || has_ready()) {
      reactor_->poll();
    } else {
      block();
    }
  }
  run_last();
}

executor::step_outcome executor::step(const bool* ended) noexcept {
  const auto is_over = [&] { return (ended == nullptr || *ended) && closer_.running() == 0; };
  bool more_to_do = false;
  if (!is_over()) {
    reactor_->poll();
    spins_ = false;  // No other executor of this thread continues during a step.
    inline_polls_left_ = inline_polls_per_await;
    more_to_do = iterate();
  }
  if (is_over()) {
    run_last();
    return {.state = run_state::ended};
  }
  serve_timers();
  const bool is_working = more_to_do || has_ready();
  const run_state found = is_working ? run_state::working : idle_state();
  return {.state = found, .deadline = next_deadline()};
}

executor::run_state executor::idle_state() noexcept {
  if (!may_block()) return has_ready() ? run_state::working : run_state::spinning;
  // The next step's `run_all` marks the mailbox awake.
  return mailbox_.fall_asleep() ? run_state::blocked : run_state::working;
}

void executor::fire_timers() noexcept {
  const bool alarm_fired = reactor_->take_alarm();
  if (alarm_fired) alarm_ = time_point::max();
  // The alarm saves reading the clock in each iteration.
  if (alarm_fired || own_clock_) fire_due();
}

bool executor::may_block() noexcept {
  if (!restless_.empty()) return false;
  bool quiet = true;
  // After the first poller with work the others need not be armed.
  for_each(pollers_, [&](poller& next) { quiet = quiet && next.prepare_wait(); });
  return quiet && !has_ready();
}

void executor::block() noexcept {
  spins_ = !may_block();
  if (spins_ && yields_) {
    counters_.yields.add();
    ::sched_yield();
  }
  if (spins_ || !mailbox_.fall_asleep()) return reactor_->poll();
  counters_.waits.add();
  reactor_->wait();  // The next iteration's `run_all` marks the mailbox awake.
}

executor_counters executor::counters() const noexcept {
  return {.iterations = counters_.iterations.value(),
          .waits = counters_.waits.value(),
          .yields = counters_.yields.value(),
          .ready_resumed = counters_.ready_resumed.value(),
          .posted = counters_.posted.value(),
          .enters = reactor_->enters()};
}

void executor::set_alarm() noexcept {
  const time_point next = next_deadline();
  // An alarm that is too early costs an iteration; moving it back each time would cost a system
  // call.
  if (alarm_ <= next) return;
  alarm_ = next;
  reactor_->set_alarm(next);
}

}  // namespace cordma
