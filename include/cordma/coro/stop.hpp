#pragma once

#include <cordma/detail/base/intrusive_list.hpp>

namespace cordma {

/// Asked to run when a `stop_source` is stopped. Unregisters itself when destroyed. A function
/// pointer rather than a virtual: it lies inside every operation, and most never register.
class stop_callback : public list_hook<stop_callback> {
 public:
  using function = void (*)(stop_callback&) noexcept;
  explicit stop_callback(function on_stop) noexcept : on_stop_{on_stop} {}

 private:
  friend class stop_source;
  function on_stop_;
};

/// Where a stop is asked for. Lives in place, belongs to one thread, never allocates (registering a
/// `std::stop_callback` costs 13 ns and two atomics; this costs four stores). Must outlive its
/// tokens, which structured concurrency gives: the source sits in what waits for its tasks.
/// \thread one; to stop from another, `executor::post` a call of `request_stop`.
class stop_source {
 public:
  stop_source() noexcept = default;
  stop_source(const stop_source&) = delete;
  stop_source& operator=(const stop_source&) = delete;

  /// Runs every registered callback, once. Callbacks only schedule, but where there is no scheduler
  /// they resume a coroutine, and that one may destroy this source or other callbacks: after the
  /// first call only the list on the stack is touched.
  void request_stop() noexcept {
    requested_ = true;
    intrusive_list<stop_callback> batch;
    batch.splice_back(callbacks_);
    while (!batch.empty()) {
      stop_callback& next = batch.pop_front();
      next.on_stop_(next);
    }
  }
  [[nodiscard]] bool stop_requested() const noexcept { return requested_; }

 private:
  friend class stop_token;
  bool requested_ = false;
  intrusive_list<stop_callback> callbacks_;
};

/// Lets an operation ask whether it should stop, and be told. The default one never stops.
class stop_token {
 public:
  constexpr stop_token() noexcept = default;
  stop_token(stop_source& source) noexcept : source_{&source} {}  // NOLINT: a view of it.

  [[nodiscard]] bool stop_possible() const noexcept { return source_ != nullptr; }
  [[nodiscard]] bool stop_requested() const noexcept {
    return source_ != nullptr && source_->requested_;
  }
  /// The stop must not have been requested yet: ask first.
  void register_callback(stop_callback& callback) const noexcept {
    if (source_ == nullptr) return;
    CORDMA_ASSERT(!source_->requested_, "registered after the stop: it would never be told");
    source_->callbacks_.push_back(callback);
  }

 private:
  stop_source* source_ = nullptr;
};

}  // namespace cordma
