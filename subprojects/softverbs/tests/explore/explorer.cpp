#include "explorer.hpp"

#include "wire/step.hpp"

#include <poll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <map>
#include <memory>
#include <mutex>
#include <semaphore>
#include <thread>

namespace softverbs::explorer {
namespace {

using time = std::chrono::steady_clock::time_point;
using std::chrono::nanoseconds;

/// The virtual clock's advance at each look: an engine that lingers sleeps after two looks.
constexpr nanoseconds clock_step{30'000};

struct fiber {
  enum class state : std::uint8_t {
    ready,
    waits_for_lock,
    waits_for_fd,
    over,
  };
  explicit fiber(bool engine) : is_engine{engine} {}
  unsigned id = 0;
  const bool is_engine;
  bool is_parked = false;  ///< an engine, between runs
  state now = state::ready;
  const void* lock = nullptr;
  int fd = -1;
  time until{};  ///< waits_for_fd: max for ever
  std::binary_semaphore may_run{0};
};

bool is_readable(int fd) noexcept {
  pollfd one{fd, POLLIN, 0};
  return ::poll(&one, 1, 0) == 1;
}

/// One place where another thread could go on: who did, and who is left to be tried.
struct choice {
  unsigned taken = 0;
  bool deviates = false;  ///< from who would go on by itself
  std::vector<unsigned> untried;
};

class scheduler {
 public:
  // ---- before and between runs: the controlling thread
  outcome explore(const scenario& what, const limits& how);

  // ---- threads
  void begin(bool is_engine);
  void end();
  void step();
  void lock(const void* mutex);
  bool try_lock(const void* mutex);
  void unlock(const void* mutex);
  void yield();
  nanoseconds wait(int fd, nanoseconds limit);
  [[nodiscard]] time now() noexcept {
    return is_mine() ? clock_ += clock_step : std::chrono::steady_clock::now();
  }
  [[nodiscard]] bool is_mine() const noexcept { return self != nullptr && running_; }

  static thread_local fiber* self;

 private:
  void freeze_engines();
  void thaw_engines();
  void start_threads(const scenario& what);
  void end_threads();
  void run_once(const scenario& what);
  [[nodiscard]] bool next_order();
  [[nodiscard]] bool can_go_on(const fiber& one) const;
  [[nodiscard]] bool all_done() const;
  /// Chooses which thread goes on: `self`, unless the order says otherwise. `is_free`: `self`
  /// waits.
  void choose(bool is_free);
  static unsigned next_of(const std::vector<unsigned>& ready, unsigned current);
  unsigned decide(const std::vector<unsigned>& ready, unsigned by_itself);
  std::vector<unsigned> ready_threads();
  void hand_over(unsigned to);
  bool pass_time();
  [[nodiscard]] bool await_delivery() const;
  void note_stuck();

  std::mutex mutex_;  // Between runs, the mutex guards fibers_.
  std::condition_variable changed_;
  std::vector<std::unique_ptr<fiber>> fibers_;  // Engines first.
  std::vector<std::thread> threads_;
  unsigned engines_ = 0;
  bool ending_ = false;
  std::map<const void*, unsigned> held_;
  std::atomic<bool> running_{false};
  std::atomic<bool> freezing_{false};
  const int freeze_fd_ = ::eventfd(0, EFD_CLOEXEC);  ///< Readable while they freeze.
  time clock_{};
  std::binary_semaphore all_over_{0};

  const scenario* scenario_ = nullptr;
  limits limits_;
  outcome result_;
  std::vector<choice> order_;
  std::size_t at_ = 0;  ///< in order_
  unsigned deviations_ = 0;
  std::uint64_t steps_ = 0;
  bool is_stuck_ = false;
  bool has_diverged_ = false;
  std::string trace_;
};

thread_local fiber* scheduler::self = nullptr;

/// Never destroyed: engines' threads may outlive main().
scheduler& the_scheduler() {
  static auto* one = new scheduler;
  return *one;
}

void scheduler::begin(bool is_engine) {
  auto mine = std::make_unique<fiber>(is_engine);
  self = mine.get();
  {
    const std::lock_guard guard{mutex_};
    self->id = static_cast<unsigned>(fibers_.size());
    fibers_.push_back(std::move(mine));
  }
  changed_.notify_all();
  if (!is_engine) self->may_run.acquire();
}

void scheduler::end() {
  const std::lock_guard guard{mutex_};
  std::erase_if(fibers_, [](const auto& one) { return one.get() == self; });
}

bool scheduler::can_go_on(const fiber& one) const {
  switch (one.now) {
    case fiber::state::ready: return true;
    case fiber::state::waits_for_lock: return !held_.contains(one.lock);
    // To go on without what it waits for lets a stuck run end.
    case fiber::state::waits_for_fd: return is_readable(one.fd) || (is_stuck_ && !one.is_engine);
    case fiber::state::over: return false;
  }
  return false;
}

bool scheduler::all_done() const {
  return std::ranges::all_of(fibers_, [](const auto& one) {
    return one->now == fiber::state::over ||
           (one->is_engine && one->now == fiber::state::waits_for_fd && one->until == time::max());
  });
}

std::vector<unsigned> scheduler::ready_threads() {
  std::vector<unsigned> ready;
  for (const auto& one : fibers_)
    if (can_go_on(*one)) ready.push_back(one->id);
  return ready;
}

/// Lets the first wait that has an end come to it.
bool scheduler::pass_time() {
  fiber* first = nullptr;
  for (const auto& one : fibers_) {
    if (one->now != fiber::state::waits_for_fd || one->until == time::max()) continue;
    if (first == nullptr || one->until < first->until) first = one.get();
  }
  if (first == nullptr) return false;
  clock_ = std::max(clock_, first->until);
  first->now = fiber::state::ready;
  return true;
}

/// Waits for what is under way in the kernel. False: nothing came.
bool scheduler::await_delivery() const {
  std::vector<pollfd> awaited;
  for (const auto& one : fibers_)
    if (one->now == fiber::state::waits_for_fd) awaited.push_back({one->fd, POLLIN, 0});
  return !is_stuck_ &&
         ::poll(awaited.data(), awaited.size(), int(limits_.delivery_max.count())) > 0;
}

void scheduler::note_stuck() {
  if (!is_stuck_) {
    ++result_.stuck;
    if (result_.first_stuck.empty()) result_.first_stuck = trace_;
  }
  is_stuck_ = true;
  scenario_->rescue();
}

/// Gives the thread that comes after the one that waits.
unsigned scheduler::next_of(const std::vector<unsigned>& ready, unsigned current) {
  const auto next = std::ranges::upper_bound(ready, current);
  return next != ready.end() ? *next : ready.front();
}

unsigned scheduler::decide(const std::vector<unsigned>& ready, unsigned by_itself) {
  if (at_ < order_.size()) {
    const choice& known = order_[at_];
    if (std::ranges::find(ready, known.taken) != ready.end()) {
      ++at_;
      if (known.deviates) ++deviations_;
      return known.taken;
    }
    has_diverged_ = true;
    order_.resize(at_);
  }
  choice fresh;
  fresh.taken = by_itself;
  for (const unsigned other : ready)
    if (other != by_itself) fresh.untried.push_back(other);
  order_.push_back(std::move(fresh));
  ++at_;
  return order_.back().taken;
}

void scheduler::choose(bool is_free) {
  ++steps_;
  const bool may_deviate = deviations_ < limits_.deviations;
  if (!is_free && !may_deviate) return;
  std::vector<unsigned> ready = ready_threads();
  while (ready.empty()) {
    if (all_done()) {
      fiber* const me = self;
      const bool is_over = me->now == fiber::state::over;
      all_over_.release();
      if (!is_over) me->may_run.acquire();
      return;
    }
    if (!pass_time() && !await_delivery()) note_stuck();
    ready = ready_threads();
  }
  const unsigned by_itself = is_free ? next_of(ready, self->id) : self->id;
  const unsigned to = may_deviate && ready.size() > 1 ? decide(ready, by_itself) : by_itself;
  if (to == self->id) return;
  char text[40];
  std::snprintf(text, sizeof text, " %u@%llu>%u", self->id, static_cast<unsigned long long>(steps_),
                to);
  trace_ += text;
  fiber* const me = self;
  const bool is_over = me->now == fiber::state::over;
  hand_over(to);
  if (!is_over) me->may_run.acquire();
}

void scheduler::hand_over(unsigned to) { fibers_[to]->may_run.release(); }

void scheduler::step() {
  if (is_mine()) choose(false);
}

void scheduler::lock(const void* mutex) {
  if (!is_mine()) return;
  choose(false);
  while (held_.contains(mutex)) {
    self->now = fiber::state::waits_for_lock;
    self->lock = mutex;
    choose(true);
    self->now = fiber::state::ready;
  }
  held_.emplace(mutex, self->id);
}

bool scheduler::try_lock(const void* mutex) {
  if (!is_mine()) return true;
  choose(false);
  return held_.emplace(mutex, self->id).second;
}

void scheduler::unlock(const void* mutex) {
  if (is_mine()) held_.erase(mutex);
}

/// No switch: an engine that lingers comes to its sleep while another thread stands anywhere.
void scheduler::yield() {
  if (is_mine()) choose(false);
}

nanoseconds scheduler::wait(int fd, nanoseconds limit) {
  if (self == nullptr) return limit;
  if (!is_mine()) {
    if (limit.count() >= 0) return limit;
    std::array<pollfd, 2> either{{{fd, POLLIN, 0}, {freeze_fd_, POLLIN, 0}}};
    while (!freezing_) {
      ::poll(either.data(), either.size(), -1);
      if (either[0].revents != 0) return nanoseconds{0};
    }
  }
  self->now = fiber::state::waits_for_fd;
  self->fd = fd;
  self->until = limit.count() < 0 ? time::max() : clock_ + limit;
  if (!is_mine()) {
    std::unique_lock guard{mutex_};
    self->is_parked = true;
    changed_.notify_all();
    guard.unlock();
    self->may_run.acquire();
    self->is_parked = false;
  } else if (limit.count() != 0) {
    if (is_stuck_ && !self->is_engine) scenario_->rescue();
    choose(true);
  }
  self->now = fiber::state::ready;
  return nanoseconds{0};
}

/// The next order, depth first. False: all were tried.
bool scheduler::next_order() {
  for (; !order_.empty(); order_.pop_back()) {
    choice& last = order_.back();
    if (last.untried.empty()) continue;
    last.taken = last.untried.back();
    last.untried.pop_back();
    last.deviates = true;
    return true;
  }
  return false;
}

void scheduler::run_once(const scenario& what) {
  at_ = 0;
  deviations_ = 0;
  steps_ = 0;
  is_stuck_ = has_diverged_ = false;
  trace_.clear();
  clock_ += std::chrono::seconds{1};  // The times that engines remember are now long ago.
  what.before();
  for (const auto& one : fibers_)
    if (!one->is_engine) one->now = fiber::state::ready;
  running_ = true;
  hand_over(engines_);
  all_over_.acquire();
  running_ = false;
  ++result_.runs;
  result_.steps += steps_;
  result_.longest = std::max(result_.longest, steps_);
  result_.diverged += has_diverged_ ? 1 : 0;
}

/// Lets the engines wait, from here on, where the scheduler sees it.
void scheduler::freeze_engines() {
  freezing_ = true;
  ::eventfd_write(freeze_fd_, 1);
  std::unique_lock guard{mutex_};
  changed_.wait(guard, [&] {
    return fibers_.size() == scenario_->engines &&
           std::ranges::all_of(fibers_, [](const auto& one) { return one->is_parked; });
  });
  for (unsigned n = 0; n < fibers_.size(); ++n) fibers_[n]->id = n;
}

/// Each thread does its part in every run: what it makes in the first one may belong to it.
void scheduler::start_threads(const scenario& what) {
  engines_ = static_cast<unsigned>(fibers_.size());
  ending_ = false;
  for (const auto& body : what.threads) {
    threads_.emplace_back([this, &body] {
      begin(false);
      for (; !ending_; self->may_run.acquire()) {
        body();
        self->now = fiber::state::over;
        choose(true);
      }
    });
    std::unique_lock guard{mutex_};
    changed_.wait(guard, [&] { return fibers_.size() == engines_ + threads_.size(); });
  }
}

void scheduler::end_threads() {
  ending_ = true;
  for (std::size_t n = engines_; n < fibers_.size(); ++n) fibers_[n]->may_run.release();
  for (std::thread& one : threads_) one.join();
  threads_.clear();
  fibers_.resize(engines_);
}

void scheduler::thaw_engines() {
  freezing_ = false;
  eventfd_t told = 0;
  ::eventfd_read(freeze_fd_, &told);
  for (const auto& one : fibers_) one->may_run.release();
}

outcome scheduler::explore(const scenario& what, const limits& how) {
  scenario_ = &what;
  limits_ = how;
  result_ = {};
  order_.clear();
  freeze_engines();
  start_threads(what);
  clock_ = std::chrono::steady_clock::now();
  // The first one finds what was before all runs, the others what one leaves.
  run_once(what);
  result_ = {};
  order_.clear();
  do {
    run_once(what);
    if (result_.stuck != 0 && how.stop_when_stuck) break;
  } while (result_.runs < how.runs_max && next_order());
  end_threads();
  thaw_engines();
  return result_;
}

}  // namespace

void at_step() noexcept { the_scheduler().step(); }
void lock(const void* mutex) noexcept { the_scheduler().lock(mutex); }
bool try_lock(const void* mutex) noexcept { return the_scheduler().try_lock(mutex); }
void unlock(const void* mutex) noexcept { the_scheduler().unlock(mutex); }
void begin_thread() noexcept { the_scheduler().begin(true); }
void end_thread() noexcept { the_scheduler().end(); }
void yield() noexcept { the_scheduler().yield(); }
time now() noexcept { return the_scheduler().now(); }
nanoseconds wait(int fd, nanoseconds limit) noexcept { return the_scheduler().wait(fd, limit); }

void await_readable(int fd) { the_scheduler().wait(fd, nanoseconds{-1}); }

outcome explore(const scenario& what, const limits& how) {
  return the_scheduler().explore(what, how);
}

}  // namespace softverbs::explorer
