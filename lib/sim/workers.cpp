#include "workers.hpp"

#include "last_words.hpp"
#include "world_state.hpp"

#include <cordma/base/error.hpp>

#include <malloc.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <limits>
#include <new>
#include <system_error>

// LeakSanitizer's runtime has it.
extern "C" [[gnu::weak]] int
__lsan_do_recoverable_leak_check();  // NOLINT(bugprone-reserved-identifier)

namespace cordma::sim::detail {
namespace {

/// The report of this process, which a signal's handler finishes.
constinit block_report* unfinished = nullptr;

[[noreturn]] void fail(const char* call) {
  throw std::system_error{errno, std::generic_category(), call};
}

/// Keeps the memory that a seed has freed for the next one.
void keep_memory() noexcept {
  constexpr int block_bytes_max = 32 << 20;  // The largest that glibc takes.
  // NOLINTBEGIN(concurrency-mt-unsafe): there is one thread.
  ::mallopt(M_MMAP_THRESHOLD, block_bytes_max);
  ::mallopt(M_TRIM_THRESHOLD, std::numeric_limits<int>::max());
  ::mallopt(M_TOP_PAD, 1 << 20);
  // NOLINTEND(concurrency-mt-unsafe)
}

/// Calls `f` in a child, and ends as that does unless it ends well.
template <class F>
void in_fresh_process(F f) {
  std::fflush(nullptr);
  const pid_t child = ::fork();
  if (child < 0) fail("fork");
  if (child == 0) {
    f();
    std::fflush(nullptr);
    ::_exit(0);
  }
  int status = 0;
  if (::waitpid(child, &status, 0) < 0) fail("waitpid");
  if (WIFSIGNALED(status)) {
    std::signal(WTERMSIG(status), SIG_DFL);
    ::raise(WTERMSIG(status));
  }
  if (WEXITSTATUS(status) != 0) ::_exit(WEXITSTATUS(status));
}

std::string ending_of(int status) {
  if (WIFSIGNALED(status)) return death_of(WTERMSIG(status));
  return WEXITSTATUS(status) == 0 ? "" : "it exited with " + std::to_string(WEXITSTATUS(status));
}

/// Has SIGALRM end the process when the time is over.
void limit_to(std::chrono::milliseconds time) {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(time);
  itimerval once{};
  once.it_value.tv_sec = seconds.count();
  once.it_value.tv_usec = std::chrono::microseconds{time - seconds}.count();
  if (::setitimer(ITIMER_REAL, &once, nullptr) != 0) fail("setitimer");
}

}  // namespace

void block_report::play(const seed_block& block, std::chrono::milliseconds seed_limit) {
  unfinished = this;
  before_death([](int) { unfinished->finish_dying(); });
  // The allocations of a seed depend on what earlier ones have left in the process.
  const bool is_fresh_for_each = block.first.wanted.failed_allocations > 0;
  for (seed_run::request one = block.first; done < block.count && !is_found && !leaks; ++one.seed) {
    if (is_fresh_for_each) {
      in_fresh_process([&] {
        limit_to(seed_limit);
        play_one(one);
        check_leaks();
      });
    } else {
      limit_to(seed_limit);
      play_one(one);
    }
  }
  limit_to({});
  check_leaks();
}

void block_report::check_leaks() noexcept {
  // A finding that ends a step may leave more behind.
  if (is_found || __lsan_do_recoverable_leak_check == nullptr) return;
  if (__lsan_do_recoverable_leak_check() != 0) leaks = true;
}

void block_report::finish_dying() noexcept {
  const world_state* const w = seed_run::world_now();
  if (w == nullptr) return;
  for (std::size_t k = 0; k < decision_kinds; ++k)
    decisions_made[k] = w->decisions_of(decision_kind(k)).made();
  take_faults(w->decisions_of(decision_kind::fault).happened());
  bounded_text events_now{text};
  w->append_last_events(events_now);
}

void block_report::take_faults(std::span<const std::uint64_t> happened) noexcept {
  faults_count = std::min(happened.size(), faults_max);
  std::copy_n(happened.begin(), faults_count, faults_happened.begin());
}

void block_report::play_one(seed_run::request one) {
  one.covers = &states;
  const seed_run run{one};
  events += run.events;
  decisions_made = run.decisions_made;
  take_faults(run.faults_happened);
  hashes[done] = run.hash;
  is_found = !run.found.empty();
  if (is_found) {
    std::memcpy(text.data(), run.found.data(), std::min(run.found.size(), text_max - 1));
  } else {
    ++done;
  }
}

workers::workers(unsigned count, std::chrono::milliseconds seed_limit)
    : seed_limit_{seed_limit}, all_(count) {
  for (worker& w : all_) {
    void* const shared = ::mmap(nullptr, sizeof(block_report), PROT_READ | PROT_WRITE,
                                MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) fail("mmap");
    w.report = static_cast<block_report*>(shared);
  }
}

workers::~workers() {
  for (worker& w : all_)
    if (w.report != nullptr) ::munmap(w.report, sizeof(block_report));
}

void workers::start(worker& w) const {
  new (w.report) block_report{};
  std::fflush(nullptr);
  const pid_t parent = ::getpid();
  w.process = ::fork();
  if (w.process < 0) fail("fork");
  if (w.process > 0) return;
  // A report that no parent reads is not worth the work.
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(1);
  keep_memory();
  w.report->play(w.block, seed_limit_);
  std::fflush(nullptr);
  ::_exit(0);
}

void workers::run(const source& next, const sink& done) {
  unsigned running = 0;
  for (;;) {
    for (worker& w : all_) {
      if (w.process != 0) continue;
      w.block = next();
      if (w.block.count == 0) break;
      start(w);
      ++running;
    }
    if (running == 0) return;
    int status = 0;
    const pid_t ended = ::waitpid(-1, &status, 0);
    if (ended < 0) fail("waitpid");
    const auto found = std::ranges::find(all_, ended, &worker::process);
    if (found == all_.end()) continue;
    found->process = 0;
    --running;
    done(found->block, *found->report, ending_of(status));
  }
}

}  // namespace cordma::sim::detail
