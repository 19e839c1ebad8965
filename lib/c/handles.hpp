#pragma once

#include <cordma/detail/base/counted.hpp>
#include <cordma/detail/base/intrusive_list.hpp>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace cordma::c {

class context;
class foreign_calls;

enum class kind : std::uint8_t { context = 1, listener, connection, memory, remote };
const char* text_of(kind of) noexcept;

/// The number that a handle is; the program sees a pointer of that value.
using handle = std::uint64_t;

template <class Pointer>
handle number_of(Pointer of) noexcept {
  return reinterpret_cast<std::uintptr_t>(of);
}
template <class Pointer>
Pointer pointer_of(handle number) noexcept {
  return reinterpret_cast<Pointer>(static_cast<std::uintptr_t>(number));  // NOLINT: never read.
}

/// Object that a handle names. The table holds a reference until the handle is closed. \thread the
/// owner's.
class object : public detail::counted, public list_hook<object> {
 public:
  explicit object(context& of) noexcept : owner{of} {}

  context& owner;
  handle number = 0;
};

/// Number of the calling thread, which no other thread ever gets.
inline thread_local constinit std::uint64_t thread_number = 0;
std::uint64_t number_thread() noexcept;
inline std::uint64_t this_thread() noexcept {
  return thread_number != 0 ? thread_number : number_thread();
}

/// True while the calling thread runs a context. What waits then could wait for itself.
inline thread_local constinit bool runs_context = false;

/// Notes that the calling thread runs a context, until it is destroyed.
class context_run {
 public:
  context_run() noexcept : before_{std::exchange(runs_context, true)} {}
  context_run(context_run&&) = delete;
  ~context_run() { runs_context = before_; }

 private:
  const bool before_;
};

/// All handles of the process. A handle is checked without a lock: by its slot's number, which
/// includes a generation, and by the slot's thread. Slots are never freed, so that any number may
/// be checked at any time.
class handle_table {
 public:
  /// Adds what `what` names, for its thread. Other threads reach it by `calls`, if there are some.
  /// \errors `std::bad_alloc`; errc::limit_exceeded.
  void add(kind of, object& what, std::shared_ptr<foreign_calls> calls);
  /// Closes the handle for ever.
  void remove(handle number) noexcept;

  enum class state : unsigned char { found, bad, foreign };
  struct finding {
    state how;
    object* what;
  };
  [[nodiscard, gnu::always_inline]] finding find(kind of, handle number) const noexcept {
    return find(of, number, this_thread());
  }
  /// Finds for a thread whose number the caller knows to be its own.
  [[nodiscard, gnu::always_inline]] finding find(kind of, handle number,
                                                 std::uint64_t thread) const noexcept {
    const std::size_t index = (number >> kind_bits) & (slots_max - 1);
    if ((number & kind_mask) != std::uint64_t(of)) return {state::bad, nullptr};
    const chunk* const in = chunks_[index / chunk_slots].load(std::memory_order_acquire);
    if (in == nullptr) return {state::bad, nullptr};
    const slot& s = (*in)[index % chunk_slots];
    if (s.number.load(std::memory_order_acquire) != number) return {state::bad, nullptr};
    if (s.thread.load(std::memory_order_relaxed) != thread) return {state::foreign, nullptr};
    return {state::found, s.what};
  }
  /// Returns the calls by which a foreign thread reaches the handle; null: none may.
  [[nodiscard]] std::shared_ptr<foreign_calls> calls_of(handle number) const;

 private:
  static constexpr unsigned kind_bits = 3;
  static constexpr std::uint64_t kind_mask = (1u << kind_bits) - 1;
  static constexpr unsigned index_bits = 20;
  static constexpr std::size_t slots_max = std::size_t{1} << index_bits;
  static constexpr std::size_t chunk_slots = 1024;

  struct slot {
    std::atomic<handle> number{0};
    std::atomic<std::uint64_t> thread{0};
    object* what = nullptr;
    std::uint64_t generation = 0;
    std::shared_ptr<foreign_calls> calls;  // Read and written under the table's mutex.
  };
  using chunk = std::array<slot, chunk_slots>;

  slot& slot_of(std::size_t index) const noexcept {
    return (*chunks_[index / chunk_slots].load(std::memory_order_relaxed))[index % chunk_slots];
  }

  std::array<std::atomic<chunk*>, slots_max / chunk_slots> chunks_{};
  std::vector<std::uint32_t> free_;  // Indices, under the mutex.
  std::size_t made_ = 0;
};

extern handle_table& table_of_process;
/// Returns the only table, which is never destroyed: programs may call while they end.
inline handle_table& handles() noexcept { return table_of_process; }

}  // namespace cordma::c
