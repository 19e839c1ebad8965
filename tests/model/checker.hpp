#pragma once

#include "memory.hpp"
#include "model.hpp"

#include <ucontext.h>

#include <memory>
#include <random>

namespace model {

/// Runs a scenario again and again, each time by other choices.
class checker {
 public:
  static checker& instance();

  outcome explore(maker of, const limits& how);

  // ---- accesses.cpp: the objects of a run
  unsigned make(const void* at, const char* type);
  unsigned make_atomic(const void* at, word value);
  unsigned make_data(const void* at);
  word load(unsigned object, std::memory_order order);
  void store(unsigned object, word value, std::memory_order order);
  word change(unsigned object, detail::changed how, word operand, std::memory_order order);
  bool compare_exchange(unsigned object, word& expected, word desired, std::memory_order success,
                        std::memory_order failure, bool is_weak);
  void fence(std::memory_order order);
  void lock(unsigned mutex);
  bool try_lock(unsigned mutex);
  void unlock(unsigned mutex);
  void wait(unsigned event);
  bool try_wait(unsigned event);
  void wake(unsigned event);
  void read(unsigned data);
  void write(unsigned data);
  void freed(const void* at, std::size_t bytes);

  // ---- scheduler.cpp
  void yield();
  /// Ends the run with a finding.
  void find(const std::string& what);
  void name(named what) { names_.push_back(std::move(what)); }

 private:
  static constexpr std::size_t stack_bytes = std::size_t{128} << 10;

  struct thread {
    ucontext_t context{};
    std::unique_ptr<std::byte[]> stack;
    knowledge known;
    operation next{};
    bool is_over = false;
    bool is_yielding = false;
    unsigned awaited = 0;             ///< threads that go first if they can, as bits
    unsigned untried = 0;             ///< threads that had no turn since the last yield
    bool has_failed_in_vain = false;  ///< a weak compare-exchange, once
  };
  struct choice {
    unsigned count;
    unsigned taken;
  };
  enum class ending : std::uint8_t { none, over, redundant, found };

  // scheduler.cpp
  static void fiber() noexcept;
  void run_once(maker of);
  void begin_threads();
  void begin_thread(unsigned index);
  void end_run(scenario& of);
  [[nodiscard]] bool next_order();
  void step(operation next);
  void go_on();
  [[noreturn]] void leave(ending how);
  [[nodiscard]] bool can_go(unsigned index) const;
  [[nodiscard]] bool must_wait(unsigned index, unsigned able) const;
  unsigned choose_thread();
  [[nodiscard]] unsigned pick(const unsigned* options, unsigned count, bool is_own_first);
  unsigned choose(unsigned count);
  /// Option 0 is the newest store.
  unsigned choose_store(unsigned count);
  [[nodiscard]] bool is_random() const noexcept { return limits_.random_runs > 0; }
  [[nodiscard]] bool reduces() const noexcept {
    return !is_random() && limits_.preemptions == unlimited && limits_.stale_reads == unlimited;
  }

  // accesses.cpp
  [[nodiscard]] thread& me() noexcept { return threads_[self_]; }
  [[nodiscard]] view& now() noexcept { return threads_[self_].known.now; }
  [[nodiscard]] std::uint16_t time() noexcept { return now().times[self_]; }
  shared_object& use(unsigned object);
  shared_data& use_data(unsigned data);
  void end_access(model::kind what, unsigned object, std::memory_order order, word value,
                  bool is_done);
  void see(const view& published, std::memory_order order);
  void append(shared_object& to, unsigned object, word value, view published,
              std::memory_order order);
  [[nodiscard]] unsigned oldest(const shared_object& of, unsigned object, std::memory_order order);
  void note_read(unsigned object, unsigned store, std::memory_order order);
  void require_before(unsigned other, std::uint16_t then, const char* what, const void* at);

  // findings.cpp
  [[nodiscard]] std::string name_of(const void* at, const char* type) const;
  [[nodiscard]] std::string value_of(word value) const;
  [[nodiscard]] std::string line_of(const traced& one) const;
  [[nodiscard]] std::string waiting() const;
  [[nodiscard]] std::string schedule() const;

  limits limits_;
  outcome result_;
  std::mt19937_64 random_;
  std::vector<choice> choices_;
  bool is_repeating_ = false;

  // The state of one run.
  std::size_t at_ = 0;  ///< in choices_
  std::vector<shared_object> objects_{objects_max};
  unsigned count_ = 0;
  std::vector<shared_data> data_;
  std::array<thread, threads_max> threads_;
  unsigned self_ = 0;
  scenario* scenario_ = nullptr;
  ucontext_t main_{};
  view in_order_;  ///< seen by sequentially consistent accesses and fences
  bool is_starting_ = false;
  ending ending_ = ending::none;
  unsigned sleepers_ = 0;  ///< threads whose next access was tried before others here, as bits
  unsigned preemptions_ = 0;
  unsigned stale_reads_ = 0;
  unsigned stays_ = 0;  ///< a thread goes on by so many of 8 random choices
  std::uint64_t steps_ = 0;
  std::vector<traced> trace_;
  std::vector<named> names_;
};

}  // namespace model
