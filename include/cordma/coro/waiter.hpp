#pragma once

#include <cordma/base/intrusive_list.hpp>
#include <cordma/coro/stop.hpp>

#include <concepts>
#include <coroutine>
#include <type_traits>

namespace cordma {

class scheduler;

/// Whom an operation tells that it ended: a suspended coroutine, or a combinator that counts its
/// children. `done` returns the coroutine to go on with (`std::noop_coroutine()` for none), so that
/// a chain of endings is a chain of tail calls. While it waits for its turn it is linked in its
/// scheduler's ready list; destroying it takes it out.
class waiter : public list_hook<waiter> {
 public:
  using function = std::coroutine_handle<> (*)(waiter&) noexcept;
  explicit waiter(function on_done) noexcept : on_done_{on_done} {}

  std::coroutine_handle<> done() noexcept { return on_done_(*this); }

 private:
  function on_done_;
};

/// What an awaited thing inherits from the coroutine that awaits it. It lives in a task's promise;
/// a foreign coroutine's is empty unless its promise has an `environment()` too: nothing stops it,
/// and it is resumed inside the call that ends its operation (`event::set`, `semaphore::release`,
/// …). It may then destroy anything, the object it awaited included, but whoever made that call;
/// and a chain of such resumes is as deep as there are coroutines in it.
struct environment {
  cordma::scheduler* scheduler = nullptr;
  stop_token stop{};
};

template <class Promise>
environment environment_of(std::coroutine_handle<Promise> coroutine) noexcept {
  if constexpr (requires {
                  { coroutine.promise().environment() } -> std::same_as<const environment&>;
                }) {
    return coroutine.promise().environment();
  } else {
    return {};
  }
}

}  // namespace cordma
