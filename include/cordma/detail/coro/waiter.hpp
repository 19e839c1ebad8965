#pragma once

#include <cordma/coro/stop.hpp>
#include <cordma/detail/base/intrusive_list.hpp>

#include <concepts>
#include <coroutine>
#include <utility>

namespace cordma {

class scheduler;
class waiter_ref;

/// Whom an operation tells that it ended: a suspended coroutine, or a combinator that counts its
/// children. `done` returns the coroutine to go on with (`std::noop_coroutine()` for none), so that
/// a chain of endings is a chain of tail calls. While it waits for its turn it is linked in its
/// scheduler's ready list; destroying it takes it out.
class waiter : public list_hook<waiter> {
 public:
  using function = std::coroutine_handle<> (*)(waiter&) noexcept;
  explicit waiter(function on_done) noexcept : on_done_{on_done} {}
  waiter(waiter&&) = delete;
  inline ~waiter();

  std::coroutine_handle<> done() noexcept { return on_done_(*this); }

 private:
  friend class waiter_ref;
  waiter_ref* told_by_ = nullptr;
  function on_done_;
};

/// How an operation knows its waiter. It forgets one that is destroyed: when a coroutine is, what
/// it awaited may go later than its waiter, and be ended in between by the destructor of a
/// neighbour.
class waiter_ref {
 public:
  waiter_ref() noexcept = default;
  waiter_ref(waiter_ref&& other) noexcept {
    if (waiter* const w = other.take()) set(*w);
  }
  waiter_ref& operator=(waiter_ref&&) = delete;
  ~waiter_ref() { static_cast<void>(take()); }

  void set(waiter& w) noexcept {
    waiter_ = &w;
    w.told_by_ = this;
  }
  [[nodiscard]] bool empty() const noexcept { return waiter_ == nullptr; }
  /// Null when there is none, or no longer. Forgets it.
  [[nodiscard]] waiter* take() noexcept {
    if (waiter_ != nullptr) waiter_->told_by_ = nullptr;
    return std::exchange(waiter_, nullptr);
  }
  /// Tells it, and gives the coroutine to go on with.
  [[nodiscard]] std::coroutine_handle<> done() noexcept {
    waiter* const w = take();
    return w != nullptr ? w->done() : std::noop_coroutine();
  }

 private:
  friend class waiter;
  waiter* waiter_ = nullptr;
};

inline waiter::~waiter() {
  if (told_by_ != nullptr) told_by_->waiter_ = nullptr;
}

/// What an awaited thing inherits from the coroutine that awaits it. It lives in a task's promise.
/// Another library's promise names a scheduler, and a stop, by a member of this signature:
///
///     const cordma::environment& environment() const noexcept;
///
/// Without it the environment is empty: nothing stops the coroutine, and what knows no scheduler of
/// its own (`own_scheduler_of`) resumes it inside the call that ends its operation (`event::set`,
/// `semaphore::release`, …). It may then destroy anything, the object it awaited included, but
/// whoever made that call; and a chain of such resumes is as deep as there are coroutines in it.
struct environment {
  cordma::scheduler* scheduler = nullptr;
  stop_token stop{};
};

template <class Promise>
const environment& environment_of(std::coroutine_handle<Promise> coroutine) noexcept {
  static constexpr environment nothing{};
  if constexpr (requires {
                  { coroutine.promise().environment() } -> std::same_as<const environment&>;
                }) {
    return coroutine.promise().environment();
  } else {
    return nothing;
  }
}

}  // namespace cordma
