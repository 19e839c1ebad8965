#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <string>
#include <type_traits>

/// A model checker for classes that threads share without a lock. The threads of a scenario are
/// fibers of one thread. At each access to an atomic, a mutex or an event the checker chooses which
/// fiber goes on. It also chooses which store a load reads, as the memory orders of C++20 allow it.
namespace model {

using word = std::uint64_t;

// ---- the objects that threads share

namespace detail {

[[nodiscard]] unsigned make_atomic(const void* at, word value) noexcept;
[[nodiscard]] word load(unsigned object, std::memory_order order) noexcept;
void store(unsigned object, word value, std::memory_order order) noexcept;
using changed = word (*)(word before, word operand);
word change(unsigned object, changed how, word operand, std::memory_order order) noexcept;
bool compare_exchange(unsigned object, word& expected, word desired, std::memory_order success,
                      std::memory_order failure, bool is_weak) noexcept;
[[nodiscard]] unsigned make_mutex(const void* at) noexcept;
void lock(unsigned mutex) noexcept;
[[nodiscard]] bool try_lock(unsigned mutex) noexcept;
void unlock(unsigned mutex) noexcept;
[[nodiscard]] unsigned make_event(const void* at, const char* type) noexcept;
inline constexpr char watched_type[] = "watched";
void wait(unsigned event) noexcept;
[[nodiscard]] bool try_wait(unsigned event) noexcept;
void wake(unsigned event) noexcept;
[[nodiscard]] unsigned make_data(const void* at) noexcept;
void read(unsigned data) noexcept;
void write(unsigned data) noexcept;

template <class T>
[[nodiscard]] word word_of(T value) noexcept {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= sizeof(word));
  word bits = 0;
  std::memcpy(&bits, &value, sizeof value);
  return bits;
}
template <class T>
[[nodiscard]] T value_of(word bits) noexcept {
  T value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

}  // namespace detail

/// In place of std::atomic. Made anew in each run.
template <class T>
class atomic {
 public:
  using order = std::memory_order;
  static constexpr bool is_always_lock_free = std::atomic<T>::is_always_lock_free;

  atomic() noexcept : atomic{T{}} {}
  atomic(T value) noexcept : object_{detail::make_atomic(this, detail::word_of(value))} {}
  atomic(const atomic&) = delete;
  atomic& operator=(const atomic&) = delete;

  T load(order how = order::seq_cst) const noexcept {
    return detail::value_of<T>(detail::load(object_, how));
  }
  void store(T value, order how = order::seq_cst) noexcept {
    detail::store(object_, detail::word_of(value), how);
  }
  operator T() const noexcept { return load(); }
  T operator=(T value) noexcept {
    store(value);
    return value;
  }
  T exchange(T value, order how = order::seq_cst) noexcept {
    return change([](word, word operand) { return operand; }, value, how);
  }
  bool compare_exchange_strong(T& expected, T value, order success, order failure) noexcept {
    return compare_exchange(expected, value, success, failure, false);
  }
  bool compare_exchange_strong(T& expected, T value, order how = order::seq_cst) noexcept {
    return compare_exchange(expected, value, how, without_release(how), false);
  }
  bool compare_exchange_weak(T& expected, T value, order success, order failure) noexcept {
    return compare_exchange(expected, value, success, failure, true);
  }
  bool compare_exchange_weak(T& expected, T value, order how = order::seq_cst) noexcept {
    return compare_exchange(expected, value, how, without_release(how), true);
  }
  T fetch_add(T by, order how = order::seq_cst) noexcept
    requires std::is_integral_v<T>
  {
    return change([](word a, word b) { return sum(a, b); }, by, how);
  }
  T fetch_sub(T by, order how = order::seq_cst) noexcept
    requires std::is_integral_v<T>
  {
    return fetch_add(static_cast<T>(T{} - by), how);
  }

 private:
  static word sum(word a, word b) noexcept {
    return detail::word_of(static_cast<T>(detail::value_of<T>(a) + detail::value_of<T>(b)));
  }
  T change(detail::changed how, T operand, order with) noexcept {
    return detail::value_of<T>(detail::change(object_, how, detail::word_of(operand), with));
  }
  static constexpr order without_release(order how) noexcept {
    if (how == order::acq_rel) return order::acquire;
    return how == order::release ? order::relaxed : how;
  }
  bool compare_exchange(T& expected, T value, order success, order failure, bool is_weak) noexcept {
    word found = detail::word_of(expected);
    const bool did =
        detail::compare_exchange(object_, found, detail::word_of(value), success, failure, is_weak);
    expected = detail::value_of<T>(found);
    return did;
  }

  unsigned object_;
};

void atomic_thread_fence(std::memory_order order) noexcept;

class mutex {
 public:
  mutex() noexcept : object_{detail::make_mutex(this)} {}
  mutex(const mutex&) = delete;
  mutex& operator=(const mutex&) = delete;
  void lock() noexcept { detail::lock(object_); }
  [[nodiscard]] bool try_lock() noexcept { return detail::try_lock(object_); }
  void unlock() noexcept { detail::unlock(object_); }

 private:
  unsigned object_;
};

/// A thread sleeps on an event as on an eventfd. No write of one thread becomes visible to another
/// by it: that is left to the atomics.
class event {
 public:
  event() noexcept : event{"event"} {}
  event(const event&) = delete;
  event& operator=(const event&) = delete;
  /// Waits until it is set, and clears it.
  void wait() noexcept { detail::wait(object_); }
  /// True if it was set; clears it.
  bool try_wait() noexcept { return detail::try_wait(object_); }
  void wake() noexcept { detail::wake(object_); }

 protected:
  explicit event(const char* type) noexcept : object_{detail::make_event(this, type)} {}

 private:
  unsigned object_;
};

/// A word that a thread watches until another one stores to it. A thread whose wait has ended has
/// loaded that store: it sees what happened before.
class watched : public event {
 public:
  watched() noexcept : event{detail::watched_type} {}
};

/// A plain object. Two accesses of which one writes, and none happens before the other, are a
/// finding.
template <class T>
class data {
 public:
  data() noexcept : data{T{}} {}
  data(T value) noexcept : object_{detail::make_data(this)}, value_{value} {}
  data(const data& other) noexcept : data{T{other}} {}
  data& operator=(const data& other) noexcept { return *this = T{other}; }
  data& operator=(T value) noexcept {
    detail::write(object_);
    value_ = value;
    return *this;
  }
  operator T() const noexcept {
    detail::read(object_);
    return value_;
  }

 private:
  unsigned object_;
  T value_;
};

// ---- for the threads of a scenario

/// Lets other threads run that can, as a thread does that waits for them in a loop.
void yield() noexcept;
/// A finding, unless `is_true`.
void check(bool is_true, const char* what) noexcept;
/// Names an object for findings, and its atomics, mutexes, events and data in order of declaration.
void name(const void* at, std::size_t bytes, const char* name,
          std::initializer_list<const char*> members = {});
template <class T>
void name(const T& object, const char* of, std::initializer_list<const char*> members = {}) {
  name(&object, sizeof object, of, members);
}

// ---- exploration

/// The state and the threads of a run. A thread of its own makes it before all others begin, and
/// destroys it behind their ends.
class scenario {
 public:
  virtual ~scenario() = default;
  virtual void run(unsigned thread) = 0;
  virtual void end() {}
};

inline constexpr unsigned unlimited = 1'000'000;

struct limits {
  unsigned threads = 2;
  std::uint64_t random_runs = 0;  ///< 0: every order within the next two limits
  std::uint64_t seed = 1;
  unsigned preemptions = unlimited;  ///< a thread that could go on does not
  unsigned stale_reads = unlimited;  ///< a load reads another store than the newest
  unsigned steps_max = 1000;         ///< a longer run is a finding
};

struct outcome {
  std::uint64_t runs = 0;       ///< runs to the end, no two of which are alike
  std::uint64_t redundant = 0;  ///< runs cut off: they differ from others in no result
  std::uint64_t steps = 0;
  std::uint64_t longest = 0;
  std::string finding;  ///< the first one, with its schedule; empty: none
};

using maker = scenario* (*)();
/// Runs the scenario until it has a finding or there is no more to try. CORDMA_MODEL_CHOICES, from
/// a finding, repeats that one run.
[[nodiscard]] outcome explore(maker make, const limits& how);

template <class Scenario>
[[nodiscard]] outcome explore(const limits& how) {
  return explore([]() -> scenario* { return new Scenario; }, how);
}

}  // namespace model
