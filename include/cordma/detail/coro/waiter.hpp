#pragma once

#include <cordma/coro/stop.hpp>
#include <cordma/detail/base/intrusive_list.hpp>

#include <concepts>
#include <coroutine>
#include <utility>

namespace cordma {

class scheduler;
class waiter_ref;

/// Target that an operation notifies of its end: a suspended coroutine, or a combinator that counts
/// its children. `done` returns the coroutine to continue with (`std::noop_coroutine()` for none),
/// so that a chain of endings is a chain of tail calls. A ready waiter is linked in its scheduler's
/// ready list; its destructor unlinks it.
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

/// An operation's reference to its waiter, which a destroyed waiter clears. When a coroutine is
/// destroyed, what it awaited may outlive the waiter. A neighbour's destructor may end the
/// operation in between.
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
  /// Takes and clears the waiter; null when there is none, or no longer.
  [[nodiscard]] waiter* take() noexcept {
    if (waiter_ != nullptr) waiter_->told_by_ = nullptr;
    return std::exchange(waiter_, nullptr);
  }
  /// Notifies the waiter, and gives the coroutine to continue with.
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

/// State that an awaited operation inherits from the coroutine that awaits it. A task's promise
/// contains it. Another library's promise names a scheduler, and a stop, by a member of this
/// signature:
///
///     const cordma::environment& environment() const noexcept;
///
/// Without that member the environment is empty, and nothing stops the coroutine. An operation
/// without a scheduler of its own (`own_scheduler_of`) resumes the coroutine inside the call that
/// ends it (`event::set`, `semaphore::release`, …).
///
/// The coroutine may then destroy anything, including the object it awaited, except the caller of
/// that function. A chain of such resumes is as deep as there are coroutines in it.
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
