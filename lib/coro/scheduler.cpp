#include <cordma/coro/scheduler.hpp>

#include <cordma/base/assert.hpp>

#include <time.h>

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

}  // namespace

const time_source& time_source::monotonic() noexcept {
  static const monotonic_clock instance;
  return instance;
}

timer::timer(timer&& other) noexcept : on_fire_{other.on_fire_} {
  CORDMA_ASSERT(!other.is_armed(), "an armed timer cannot be moved");
}

scheduler::~scheduler() {
  // A timer that outlives its scheduler must not reach back into it.
  for (timer* t : timers_) t->home_ = nullptr;
}

std::size_t scheduler::run(intrusive_list<waiter>& ready) noexcept {
  intrusive_list<waiter> batch;
  batch.splice_back(ready);
  std::size_t resumed = 0;
  for (; !batch.empty(); ++resumed) resume(batch.pop_front());
  return resumed;
}

std::size_t scheduler::fire_due() noexcept {
  if (timers_.empty()) return 0;
  std::size_t fired = 0;
  for (const time_point now = clock_.now(); !timers_.empty() && timers_.front()->deadline_ <= now;
       ++fired) {
    timer& due = *timers_.front();
    remove(due);
    due.on_fire_(due);
  }
  return fired;
}

void scheduler::arm(timer& t, time_point deadline) {
  CORDMA_ASSERT(!t.is_armed(), "timer armed twice");
  timers_.push_back(&t);
  t.home_ = this;
  t.deadline_ = deadline;
  t.order_ = order_++;
  sift_up(t, timers_.size() - 1);
}

void scheduler::rearm(timer& t, time_point deadline) {
  if (!t.is_armed()) return arm(t, deadline);
  CORDMA_ASSERT(t.home_ == this, "a timer is armed elsewhere");
  t.deadline_ = deadline;
  t.order_ = order_++;
  sift_up(t, t.position_);
  sift_down(t, t.position_);
}

void scheduler::remove(timer& t) noexcept {
  const std::size_t hole = t.position_;
  t.home_ = nullptr;
  timer& last = *timers_.back();
  timers_.pop_back();
  if (&last == &t) return;
  sift_up(last, hole);
  sift_down(last, last.position_);
}

void scheduler::place(timer& t, std::size_t position) noexcept {
  timers_[position] = &t;
  t.position_ = position;
}

namespace {

bool earlier(time_point a, std::uint64_t a_order, time_point b, std::uint64_t b_order) noexcept {
  return a != b ? a < b : a_order < b_order;
}

}  // namespace

void scheduler::sift_up(timer& t, std::size_t position) noexcept {
  while (position > 0) {
    timer& parent = *timers_[(position - 1) / 2];
    if (!earlier(t.deadline_, t.order_, parent.deadline_, parent.order_)) break;
    place(parent, position);
    position = (position - 1) / 2;
  }
  place(t, position);
}

void scheduler::sift_down(timer& t, std::size_t position) noexcept {
  for (;;) {
    std::size_t child = 2 * position + 1;
    if (child >= timers_.size()) break;
    if (child + 1 < timers_.size()) {
      const timer &left = *timers_[child], &right = *timers_[child + 1];
      if (earlier(right.deadline_, right.order_, left.deadline_, left.order_)) ++child;
    }
    timer& lesser = *timers_[child];
    if (!earlier(lesser.deadline_, lesser.order_, t.deadline_, t.order_)) break;
    place(lesser, position);
    position = child;
  }
  place(t, position);
}

}  // namespace cordma
