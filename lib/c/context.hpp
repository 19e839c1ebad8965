#pragma once

#include "bounded.hpp"
#include "foreign_calls.hpp"
#include "handles.hpp"
#include "loop_reactor.hpp"
#include "post.hpp"
#include "status.hpp"

#include <cordma/coro/event.hpp>
#include <cordma/runtime/runtime.hpp>

#include <cstdint>
#include <memory>
#include <optional>

namespace cordma::c {

/// Options of a context, checked.
struct context_options {
  runtime_options of_runtime;
  int loop = CORDMA_CALLS;
  std::optional<unsigned> cpu;
  unsigned receives = 64;
  std::uint32_t receive_bytes = 4096;
  bool is_insecure = false;
};

/// \errors `misuse`: an option, by its name.
context_options checked(const cordma_options* options);

/// A runtime, all that was made from it, and what runs in the background. \thread the owner's.
class context final : public object {
 public:
  static constexpr kind is = kind::context;
  /// Makes a context of the calling thread. `calls` is null unless it is one of its own.
  context(context_options&& options, std::shared_ptr<foreign_calls> calls);
  ~context() override;

  /// Adds an object to the table. It is closed with the context at the latest.
  /// \errors `std::bad_alloc`; errc::limit_exceeded; `misuse`: `shut_down` has begun.
  void adopt(kind of, object& what);
  /// Closes the handle of an object, which lives as long as somebody refers to it.
  static void abandon(object& what) noexcept;

  /// Disconnects on all connections, closes everything, and waits for what runs.
  task<> shut_down(std::int64_t timeout_us);
  /// Runs the context's own thread until `shut_down` has ended.
  void serve();
  /// Ends `serve`.
  void request_release(std::int64_t timeout_us) noexcept {
    goodbye_us_ = timeout_us;
    is_released_.set();
  }

  /// Returns true in a callback: nothing may wait there.
  [[nodiscard]] bool is_running() noexcept { return rt.executor().is_running(); }
  /// Makes the program's loop call `cordma_dispatch` for what was begun outside of it.
  void kick() noexcept {
    if (loop != nullptr && !is_running()) loop->wake();
  }
  /// Waits for an operation that has begun, and runs the context meanwhile.
  template <class Op>
  void finish(Op& op);

 private:
  // Bounds the polls between two event-loop iterations, which timers and other tasks need.
  static constexpr unsigned fast_calls_max = 16;
  static constexpr unsigned fast_polls = 64;

  std::unique_ptr<loop_reactor> made_loop_;  // Null once the executor has it.
  unsigned fast_calls_left_ = 0;
  std::int64_t goodbye_us_ = 0;

 public:
  const std::uint64_t thread = this_thread();
  const std::shared_ptr<foreign_calls> calls;  ///< Null unless the context has its own thread.
  loop_reactor* const loop;                    ///< Null unless the program's loop runs the context.
  runtime rt;
  scope tasks{rt.executor()};
  intrusive_list<bounded_base> waits;  ///< Waits of foreign threads.
  post_pool posts;

 private:
  event is_released_{rt.executor()};
  intrusive_list<object> objects_;
  bool is_shut_ = false;  // `shut_down` has begun: nobody would close what comes now.
};

template <class Op>
void context::finish(Op& op) {
  if (fast_calls_left_ > 0 && !rt.executor().has_ready()) {
    --fast_calls_left_;
    for (unsigned n = 0; n < fast_polls; ++n) {
      rt.poll();
      if (op.take_ready()) return;
    }
  }
  fast_calls_left_ = fast_calls_max;
  const context_run here;
  rt.executor().run(op.rest(rt.executor()));
}

}  // namespace cordma::c
