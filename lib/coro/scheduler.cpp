#include <cordma/coro/scheduler.hpp>

#include <cordma/detail/base/assert.hpp>

#include <time.h>

#include <utility>

namespace cordma {
namespace {

time_point to_time_point(const timespec& t) noexcept {
  return time_point{std::chrono::seconds{t.tv_sec} + std::chrono::nanoseconds{t.tv_nsec}};
}

class monotonic_clock final : public time_source {
 public:
  monotonic_clock() noexcept {
    timespec tick{};
    ::clock_getres(CLOCK_MONOTONIC_COARSE, &tick);
    tick_ = to_time_point(tick).time_since_epoch();
  }
  time_point now() const noexcept override { return std::chrono::steady_clock::now(); }
  time_point about_now() const noexcept override {
    timespec last_tick{};
    ::clock_gettime(CLOCK_MONOTONIC_COARSE, &last_tick);
    return to_time_point(last_tick) + tick_;
  }

 private:
  duration tick_;
};

thread_local scheduler* running = nullptr;

}  // namespace

scheduler* scheduler::of_this_thread() noexcept { return running; }

scheduler* scheduler::run_on_this_thread(scheduler* next) noexcept {
  return std::exchange(running, next);
}

const time_source& time_source::monotonic() noexcept {
  static const monotonic_clock instance;
  return instance;
}

namespace {

// The clock is made at load time: a fork during the first call would leave the child none.
[[maybe_unused]] const auto& clock_at_load = time_source::monotonic();

}  // namespace

timer::timer(timer&& other) noexcept : on_fire_{other.on_fire_} {
  CORDMA_ASSERT(!other.is_armed(), "an armed timer cannot be moved");
}

scheduler::~scheduler() {
  // A timer that outlives its scheduler must not refer to it.
  while (earliest_ != nullptr) remove(*earliest_);
}

std::size_t scheduler::run(intrusive_list<waiter>& ready) noexcept {
  intrusive_list<waiter> batch;
  batch.splice_back(ready);
  std::size_t resumed = 0;
  for (; !batch.empty(); ++resumed) {
    waiter& next = batch.pop_front();
    more_ready_ = !batch.empty();
    resume(next);
  }
  more_ready_ = false;  // The last coroutine may have been unlinked.
  end_iteration();
  return resumed;
}

std::size_t scheduler::fire_due() noexcept {
  if (earliest_ == nullptr) return 0;
  std::size_t fired = 0;
  for (const time_point now = clock_.now(); earliest_ != nullptr && earliest_->deadline_ <= now;
       ++fired) {
    timer& due = *earliest_;
    remove(due);
    due.on_fire_(due);
  }
  return fired;
}

void scheduler::arm(timer& t, time_point deadline) noexcept {
  CORDMA_ASSERT(!t.is_armed(), "timer armed twice");
  t.scheduler_ = this;
  t.deadline_ = deadline;
  t.order_ = order_++;
  earliest_ = earliest_ == nullptr ? &t : &meld(*earliest_, t);
}

void scheduler::rearm(timer& t, time_point deadline) noexcept {
  CORDMA_ASSERT(!t.is_armed() || t.scheduler_ == this, "a timer is armed elsewhere");
  t.disarm();
  arm(t, deadline);
}

/// Melds two heaps whose roots have nothing before them; the earlier root takes the other below it.
timer& scheduler::meld(timer& a, timer& b) noexcept {
  const bool is_b_first = b.is_before(a);
  timer& first = is_b_first ? b : a;
  timer& later = is_b_first ? a : b;
  later.before_ = &first;
  later.beside_ = first.below_;
  if (first.below_ != nullptr) first.below_->before_ = &later;
  first.below_ = &later;
  return first;
}

/// Melds siblings: first in pairs, then all, the last pair first, which leaves few below the
/// earliest.
timer* scheduler::meld_all(timer* first) noexcept {
  timer* pairs = nullptr;
  while (first != nullptr) {
    timer* pair = first;
    timer* const other = pair->beside_;
    first = other != nullptr ? other->beside_ : nullptr;
    if (other != nullptr) pair = &meld(*pair, *other);
    pair->beside_ = pairs;
    pairs = pair;
  }
  if (pairs == nullptr) return nullptr;
  timer* earliest = pairs;
  for (timer* next = pairs->beside_; next != nullptr;)
    earliest = &meld(*earliest, *std::exchange(next, next->beside_));
  earliest->beside_ = nullptr;
  return earliest;
}

void scheduler::remove(timer& t) noexcept {
  timer* const later = meld_all(t.below_);
  if (&t == earliest_) {
    earliest_ = later;
  } else {
    timer& before = *t.before_;
    (before.below_ == &t ? before.below_ : before.beside_) = t.beside_;
    if (t.beside_ != nullptr) t.beside_->before_ = &before;
    if (later != nullptr) earliest_ = &meld(*earliest_, *later);
  }
  t.scheduler_ = nullptr;
  t.below_ = t.beside_ = nullptr;
}

}  // namespace cordma
