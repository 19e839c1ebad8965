#include "arena.hpp"
#include "checker.hpp"

#include <algorithm>
#include <cstdlib>
#include <sstream>
#include <utility>

namespace model {

checker& checker::instance() {
  static checker one;
  return one;
}

// ---- one run

/// A scenario's thread, from its beginning to its end.
void checker::fiber() noexcept {
  checker& all = instance();
  {
    const arena::inside scenario;
    all.scenario_->run(all.self_ - 1);
  }
  all.me().is_over = true;
  all.is_starting_ ? static_cast<void>(::setcontext(&all.main_)) : all.go_on();
  all.leave(ending::over);
}

void checker::begin_thread(unsigned index) {
  thread& one = threads_[index];
  if (!one.stack) one.stack = std::make_unique<std::byte[]>(stack_bytes);
  ::getcontext(&one.context);
  one.context.uc_stack = {.ss_sp = one.stack.get(), .ss_flags = 0, .ss_size = stack_bytes};
  one.context.uc_link = nullptr;
  ::makecontext(&one.context, reinterpret_cast<void (*)()>(&checker::fiber), 0);
  one.known = {};
  one.known.now = threads_[0].known.now;
  one.known.now.times[index] = 1;
  one.is_over = one.is_yielding = one.has_failed_in_vain = false;
  one.awaited = one.untried = 0;
}

/// Lets each thread run to its first access, so that the next access of each is known.
void checker::begin_threads() {
  ++threads_[0].known.now.times[0];
  for (unsigned index = 1; index <= limits_.threads; ++index) begin_thread(index);
  is_starting_ = true;
  for (unsigned index = 1; index <= limits_.threads && ending_ == ending::none; ++index) {
    self_ = index;
    ::swapcontext(&main_, &threads_[index].context);
  }
  is_starting_ = false;
}

void checker::end_run(scenario& of) {
  self_ = 0;
  for (unsigned index = 1; index <= limits_.threads; ++index) now().join(threads_[index].known.now);
  {
    const arena::inside scenario;
    of.end();
    delete &of;
  }
  if (result_.finding.empty() && arena::left() > 0)
    find(std::to_string(arena::left()) + " allocations are left");
}

void checker::run_once(maker of) {
  at_ = 0;
  count_ = 0;
  data_.clear();
  self_ = 0;
  threads_[0].known = {};
  threads_[0].known.now.times[0] = 1;
  in_order_ = {};
  ending_ = ending::none;
  sleepers_ = preemptions_ = stale_reads_ = 0;
  steps_ = 0;
  trace_.clear();
  names_.clear();
  arena::clear();
  {
    const arena::inside scenario;
    scenario_ = of();
  }
  begin_threads();
  if (ending_ == ending::none) {
    self_ = 1;
    const unsigned first = choose_thread();
    if (first != 0) {
      self_ = first;
      ::swapcontext(&main_, &threads_[first].context);
    } else {
      ending_ = ending::over;
    }
  }
  if (ending_ == ending::over) end_run(*scenario_);
  self_ = 0;
  result_.runs += ending_ == ending::redundant ? 0 : 1;
  result_.redundant += ending_ == ending::redundant ? 1 : 0;
  result_.steps += steps_;
  result_.longest = std::max(result_.longest, steps_);
}

void checker::leave(ending how) {
  ending_ = how;
  ::setcontext(&main_);
  std::abort();
}

void checker::step(operation next) {
  if (self_ == 0) return;
  me().next = next;
  if (is_starting_)
    ::swapcontext(&me().context, &main_);
  else
    go_on();
  if (++steps_ > limits_.steps_max)
    find("no end after " + std::to_string(limits_.steps_max) + " steps");
}

/// Continues with the thread whose access is next; returns when that is this one's.
void checker::go_on() {
  const unsigned next = choose_thread();
  if (next == 0) leave(ending::over);
  const unsigned before = std::exchange(self_, next);
  if (next != before) ::swapcontext(&threads_[before].context, &threads_[next].context);
}

void checker::yield() {
  if (self_ == 0) return;
  if (reduces()) find("a scenario that yields needs a limit of preemptions");
  me().is_yielding = true;
  // Two threads that yield to each other would keep a third one waiting for ever.
  me().awaited |= std::exchange(me().untried, ~(1u << self_));
}

void checker::find(const std::string& what) {
  if (result_.finding.empty()) result_.finding = what + "\n" + schedule();
  if (self_ != 0) leave(ending::found);
}

// ---- choices

bool checker::can_go(unsigned index) const {
  const thread& one = threads_[index];
  if (one.is_over) return false;
  const shared_object& of = objects_[one.next.object];
  if (one.next.kind == kind::lock) return of.holder < 0;
  return one.next.kind != kind::wait || of.is_set;
}

bool checker::must_wait(unsigned index, unsigned able) const {
  return (able >> index & 1) == 0 || (threads_[index].awaited & able & ~(1u << index)) != 0;
}

/// Returns the thread whose access is next; 0: all threads are over.
unsigned checker::choose_thread() {
  std::array<unsigned, threads_max> options{};
  unsigned count = 0;
  const auto nth = [&](unsigned n) { return (self_ - 1 + n) % limits_.threads + 1; };
  unsigned able = 0;
  for (unsigned index = 1; index <= limits_.threads; ++index)
    able |= (can_go(index) ? 1u : 0u) << index;
  const bool is_own_first = steps_ > 0 && !must_wait(self_, able) && !me().is_yielding;
  for (unsigned n = 0; n < limits_.threads; ++n)
    if (!must_wait(nth(n), able) && !threads_[nth(n)].is_yielding) options[count++] = nth(n);
  for (unsigned n = 1; count == 0 && n <= limits_.threads; ++n)
    if (!must_wait(nth(n), able)) options[count++] = nth(n);
  if (count == 0) {
    for (unsigned index = 1; index <= limits_.threads; ++index)
      if (!threads_[index].is_over) find("all threads wait for ever:" + waiting());
    return 0;
  }
  if (is_own_first && preemptions_ >= limits_.preemptions) count = 1;
  const unsigned chosen = pick(options.data(), count, is_own_first);
  if (is_own_first && chosen != self_) ++preemptions_;
  for (unsigned index = 1; index <= limits_.threads; ++index) {
    threads_[index].is_yielding = false;
    threads_[index].awaited &= ~(1u << chosen);
    threads_[index].untried &= ~(1u << chosen);
  }
  return chosen;
}

unsigned checker::pick(const unsigned* options, unsigned count, bool is_own_first) {
  if (is_random() && !is_repeating_ && is_own_first && count > 1 && random_() % 8 < stays_) {
    choices_.push_back({count, 0});
    ++at_;
    return options[0];
  }
  if (!reduces()) return options[choose(count)];
  std::array<unsigned, threads_max> awake{};
  unsigned awake_count = 0;
  for (unsigned n = 0; n < count; ++n)
    if ((sleepers_ >> options[n] & 1) == 0) awake[awake_count++] = options[n];
  if (awake_count == 0) {
    if (self_ != 0 && !is_repeating_) leave(ending::redundant);
    return options[0];
  }
  const unsigned taken = choose(awake_count);
  const unsigned chosen = awake[taken];
  // Orders in which an earlier option comes first have been tried. One that comes later differs
  // from them only behind an access that depends on that option's.
  for (unsigned n = 0; n < taken; ++n) sleepers_ |= 1u << awake[n];
  for (unsigned index = 1; index <= limits_.threads; ++index)
    if ((sleepers_ >> index & 1) != 0 && !independent(threads_[index].next, threads_[chosen].next))
      sleepers_ &= ~(1u << index);
  return chosen;
}

unsigned checker::choose(unsigned count) {
  if (count == 1) return 0;
  if (at_ < choices_.size()) return std::min(choices_[at_++].taken, count - 1);
  const unsigned taken =
      is_random() && !is_repeating_ ? static_cast<unsigned>(random_() % count) : 0;
  choices_.push_back({count, taken});
  ++at_;
  return taken;
}

unsigned checker::choose_store(unsigned count) {
  if (stale_reads_ >= limits_.stale_reads) return 0;
  const unsigned back = choose(count);
  if (back > 0) ++stale_reads_;
  return back;
}

bool checker::next_order() {
  while (!choices_.empty()) {
    choice& last = choices_.back();
    if (++last.taken < last.count) return true;
    choices_.pop_back();
  }
  return false;
}

outcome checker::explore(maker of, const limits& how) {
  limits_ = how;
  result_ = {};
  choices_.clear();
  const char* const repeated =
      std::getenv("CORDMA_MODEL_CHOICES");  // NOLINT(concurrency-mt-unsafe)
  is_repeating_ = repeated != nullptr;
  if (is_repeating_) {
    std::istringstream words{repeated};
    for (unsigned taken = 0; words >> taken;) choices_.push_back({0, taken});
    run_once(of);
  } else if (is_random()) {
    random_.seed(how.seed);
    while (result_.runs < how.random_runs && result_.finding.empty()) {
      choices_.clear();
      stays_ = static_cast<unsigned>(random_() % 8);
      run_once(of);
    }
  } else {
    do {
      run_once(of);
    } while (result_.finding.empty() && next_order());
  }
  return result_;
}

// ---- what scenarios call

void yield() noexcept { checker::instance().yield(); }

void check(bool is_true, const char* what) noexcept {
  const arena::outside own;
  if (!is_true) checker::instance().find(what);
}

void name(const void* at, std::size_t bytes, const char* name,
          std::initializer_list<const char*> members) {
  const arena::outside own;
  checker::instance().name({at, bytes, name, {members.begin(), members.end()}});
}

outcome explore(maker make, const limits& how) { return checker::instance().explore(make, how); }

}  // namespace model
