#pragma once

#include <cordma/detail/base/intrusive_list.hpp>

namespace cordma {

/// Callback that a stopped `stop_source` runs. The destructor unregisters it. It is a function
/// pointer rather than a virtual, because every operation contains one and most never register.
class stop_callback : public list_hook<stop_callback> {
 public:
  using function = void (*)(stop_callback&) noexcept;
  explicit stop_callback(function on_stop) noexcept : on_stop_{on_stop} {}

 private:
  friend class stop_source;
  function on_stop_;
};

/// Source of stop requests: an in-place object of one thread that never allocates. Registering a
/// `std::stop_callback` costs 13 ns and two atomics; registering here costs four stores. The source
/// outlives its tokens. Structured concurrency ensures that: the source is a member of what waits
/// for its tasks.
/// \thread one. To stop from another thread, `executor::post` a call of `request_stop`.
class stop_source {
 public:
  stop_source() noexcept = default;
  stop_source(stop_source&&) = delete;

  /// Runs every registered callback, once. Callbacks only schedule; without a scheduler they resume
  /// a coroutine, which may destroy this source or other callbacks. After the first call only the
  /// list on the stack is touched.
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

/// Lets an operation ask whether it should stop, and register a callback. A default token never
/// stops.
class stop_token {
 public:
  constexpr stop_token() noexcept = default;
  // NOLINT: a token is a view of its source.
  stop_token(stop_source& source) noexcept : source_{&source} {}  // NOLINT: implicit.

  [[nodiscard]] bool stop_possible() const noexcept { return source_ != nullptr; }
  [[nodiscard]] bool stop_requested() const noexcept {
    return source_ != nullptr && source_->requested_;
  }
  /// Registers `callback`; the stop must not have been requested yet.
  void register_callback(stop_callback& callback) const noexcept {
    if (source_ == nullptr) return;
    CORDMA_ASSERT(!source_->requested_, "registered after the stop: it would never be told");
    source_->callbacks_.push_back(callback);
  }

 private:
  stop_source* source_ = nullptr;
};

}  // namespace cordma
