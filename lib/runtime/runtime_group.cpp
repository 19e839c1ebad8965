#include <cordma/runtime/runtime_group.hpp>

#include "base/check_option.hpp"
#include "base/failures.hpp"
#include "cpus.hpp"

#include <cordma/base/unique_fd.hpp>
#include <cordma/detail/io/fd_watch.hpp>

#include <sys/eventfd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <future>
#include <latch>
#include <mutex>
#include <new>
#include <optional>
#include <system_error>
#include <thread>

namespace cordma {
namespace {

/// A request that is made once and that every thread sees: each polls the same descriptor, and none
/// reads it. Unlike a posted call, the request needs no memory, and no lock that a signal handler
/// could find taken.
class bell {
 public:
  bell() : fd_{::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)} {
    if (!fd_.is_open()) throw error{errno_failure(errno, "eventfd")};
  }
  void ring() noexcept {
    // Release publishes what the caller wrote before to the threads that see the request; the
    // descriptor does not. The exchange keeps what an earlier ring published.
    is_rung_.exchange(true, std::memory_order_release);
    static_cast<void>(::eventfd_write(fd_.get(), 1));
  }
  task<> rung(cordma::executor& executor) {
    while (!is_rung_.load(std::memory_order_acquire)) co_await readable(executor, fd_.get());
  }

 private:
  unique_fd fd_;
  std::atomic<bool> is_rung_{false};
};

/// The calls that one `run` makes. Shared, because a thread may still leave `count_down` when
/// `run` has returned.
struct calls {
  explicit calls(unsigned count) noexcept : left{count} {}
  /// Keeps the first error.
  void note(std::exception_ptr why) {
    const std::lock_guard lock{mutex};
    if (first_error == nullptr) first_error = std::move(why);
  }

  std::latch left;
  std::mutex mutex;
  std::exception_ptr first_error;
};

unsigned thread_count(const runtime_group_options& options) {
  for (const unsigned cpu : options.pin) check_cpu(cpu);
  const std::size_t cpus =
      options.pin.empty() ? runtime_group::allowed_cpus().size() : options.pin.size();
  const std::size_t count = options.threads != 0 ? options.threads : cpus;
  check_option("runtime_group_options", "threads", static_cast<long long>(count), 1,
               runtime_group_options::threads_limit);
  if (!options.pin.empty() && options.pin.size() < count) {
    detail::throw_failure(
        errc::out_of_range, "runtime_group_options",
        detail::detail_text("pin names %zu CPUs for %zu threads: one for each, or none",
                            options.pin.size(), count));
  }
  return unsigned(count);
}

}  // namespace

struct [[gnu::visibility("hidden")]] runtime_group::state {
  explicit state(const runtime_group_options& options);
  state(state&&) = delete;
  ~state() { end(); }

  void end() noexcept;
  [[nodiscard]] bool is_called_by_member() const noexcept;

  const unsigned count;  ///< number of threads
  bell stop;
  bell leave;
  std::latch idle;  ///< Threads whose tasks have all ended, after the stop.
  std::latch left;  ///< Threads that run nothing any more.
  /// Declared after the threads that use them.
  std::vector<std::unique_ptr<group_listener>> listeners;
  std::vector<std::unique_ptr<member>> members;
};

struct [[gnu::visibility("hidden")]] runtime_group::member {
  /// Returns when the member's runtime is there. \errors what the constructor of the runtime
  /// throws.
  member(state& of, unsigned number, runtime_options options, std::optional<unsigned> cpu);

  void begin(const body& each, const std::shared_ptr<calls>& all) noexcept;
  void live(runtime_options& options, std::optional<unsigned> cpu,
            std::promise<void>& started) noexcept;
  task<> work_until_stopped();
  task<> work_on(const body& each, std::shared_ptr<calls> all);

  state& group;
  const unsigned index;
  // Points to the thread's stack.
  runtime* rt = nullptr;
  scope* work = nullptr;
  std::jthread thread;  // Declared last, and so joined before the other members are destroyed.
};

runtime_group::member::member(state& of, unsigned number, runtime_options options,
                              std::optional<unsigned> cpu)
    : group{of}, index{number} {
  std::promise<void> promise;
  std::future<void> started = promise.get_future();
  try {
    thread = std::jthread{
        [this, &options, cpu, p = std::move(promise)]() mutable { live(options, cpu, p); }};
  } catch (const std::system_error& e) {
    throw error{errno_failure(e.code().value(), "pthread_create", {"thread", index},
                              "fewer threads, or a higher limit (ulimit -u)")};
  }
  started.get();
}

/// Runs the thread. A failure after the start can only be lack of memory, and ends the program.
void runtime_group::member::live(runtime_options& options, std::optional<unsigned> cpu,
                                 std::promise<void>& started) noexcept {
  std::optional<runtime> made;
  std::exception_ptr why;
  try {
    if (cpu) pin_to(*cpu);  // Pinning first makes the thread touch its memory from that CPU.
    made.emplace(std::move(options));
    made->run(current_environment());  // A missing capability of the ring shows now.
  } catch (...) {
    why = std::current_exception();
  }
  if (why != nullptr) {
    made.reset();
    return started.set_exception(std::move(why));
  }
  scope tasks{made->executor()};
  rt = &*made;
  work = &tasks;
  started.set_value();
  made->run(work_until_stopped());
  // No executor is destroyed before all have stopped: a call posted to one may post to another.
  group.left.arrive_and_wait();
}

task<> runtime_group::member::work_until_stopped() {
  co_await group.stop.rung(rt->executor());
  work->request_stop();
  co_await work->join();
  group.idle.count_down();
  co_await group.leave.rung(rt->executor());
  co_await work->join();  // Waits for tasks started after the stop.
}

void runtime_group::member::begin(const body& each, const std::shared_ptr<calls>& all) noexcept {
  try {
    work->spawn(work_on(each, all));
  } catch (const std::bad_alloc&) {
    all->note(std::current_exception());
    group.stop.ring();
    all->left.count_down();
  }
}

task<> runtime_group::member::work_on(const body& each, std::shared_ptr<calls> all) {
  std::exception_ptr why;
  try {
    co_await each(*rt, index);
  } catch (const cancelled&) {
    // The body ended normally.
  } catch (...) {
    why = std::current_exception();
  }
  if (why != nullptr) {
    all->note(std::move(why));  // Note the error before others fail because of the stop.
    group.stop.ring();
  }
  all->left.count_down();  // `each` may be gone now.
}

runtime_group::state::state(const runtime_group_options& options)
    : count{thread_count(options)}, idle{count}, left{count} {
  try {
    // A member without a place would be waited for before it is asked to stop.
    members.reserve(count);
    for (unsigned i = 0; i < count; ++i) {
      const auto cpu = options.pin.empty() ? std::nullopt : std::optional{options.pin[i]};
      runtime_options of_one;
      if (options.each) of_one = options.each(i);
      members.push_back(std::make_unique<member>(*this, i, std::move(of_one), cpu));
    }
  } catch (...) {
    const auto missing = static_cast<std::ptrdiff_t>(count - members.size());
    idle.count_down(missing);
    left.count_down(missing);
    end();
    throw;
  }
}

void runtime_group::state::end() noexcept {
  stop.ring();
  idle.wait();
  leave.ring();
  members.clear();
}

bool runtime_group::state::is_called_by_member() const noexcept {
  const auto is_this = [](const auto& m) {
    return m->thread.get_id() == std::this_thread::get_id();
  };
  return std::any_of(members.begin(), members.end(), is_this);
}

runtime_group::runtime_group(const runtime_group_options& options)
    : state_{std::make_unique<state>(options)} {}
runtime_group::~runtime_group() {
  CORDMA_ASSERT(!state_->is_called_by_member(), "a thread of the group would wait for itself");
}

void runtime_group::run(const body& each) {
  CORDMA_ASSERT(!state_->is_called_by_member(), "a thread of the group would wait for itself");
  const auto all = std::make_shared<calls>(size());
  unsigned begun = 0;
  try {
    for (const auto& m : state_->members) {
      m->rt->executor().post([&each, all, to = m.get()]() noexcept { to->begin(each, all); });
      ++begun;
    }
  } catch (const std::bad_alloc&) {
    all->note(std::current_exception());
    stop();
    all->left.count_down(size() - begun);
  }
  all->left.wait();
  if (all->first_error != nullptr) std::rethrow_exception(std::move(all->first_error));
}

group_listener& runtime_group::serve(const endpoint& local,
                                     group_listener::connection_handler handler,
                                     serve_options options) {
  CORDMA_ASSERT(!state_->is_called_by_member(), "a thread of the group would wait for itself");
  std::vector<group_listener::member_runtime> member_runtimes;
  for (const auto& m : state_->members) member_runtimes.push_back({*m->rt, *m->work});
  state_->listeners.push_back(std::make_unique<group_listener>(
      member_runtimes, local, std::move(options), std::move(handler)));
  state_->listeners.back()->start();
  return *state_->listeners.back();
}

void runtime_group::stop() noexcept { state_->stop.ring(); }

void runtime_group::wait() {
  CORDMA_ASSERT(!state_->is_called_by_member(), "a thread of the group would wait for itself");
  state_->idle.wait();
}

unsigned runtime_group::size() const noexcept { return state_->count; }

runtime& runtime_group::operator[](unsigned index) noexcept {
  CORDMA_ASSERT(index < state_->members.size(), "the group has fewer threads");
  return *state_->members[index]->rt;
}

}  // namespace cordma
