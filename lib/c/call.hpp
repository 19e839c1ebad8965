#pragma once

#include "objects.hpp"

#include <array>
#include <optional>
#include <string_view>
#include <type_traits>
#include <utility>

namespace cordma::c {

inline int bad_handle(kind of) noexcept {
  outcome how{.status = CORDMA_BAD_HANDLE};
  constexpr std::string_view text = ": the handle is null, was closed, or is of another kind";
  std::array<char, 100> line;
  std::size_t length = std::string_view{text_of(of)}.copy(line.data(), 32);
  length += text.copy(line.data() + length, line.size() - length);
  how.text = std::string_view{line.data(), length};
  return note(how);
}

inline int wrong_thread() noexcept {
  return note(
      CORDMA_WRONG_THREAD,
      "the context belongs to the thread that made it: call there, or make the context with "
      "CORDMA_THREAD, which takes calls from any");
}

inline int in_callback() noexcept {
  return note(
      CORDMA_IN_CALLBACK,
      "the call would wait in a callback, for what the callback holds up or for the thread of "
      "another context: post the request, or call after the callback has returned");
}

/// \errors `misuse`, always: for a handle that goes not with the first one of a call.
[[noreturn]] void throw_not_found(handle_table::state how);

/// Finds what a handle names, on the thread of its context. \errors `misuse`.
template <class T>
[[gnu::always_inline]] inline T& found(context& in, handle number) {
  const auto here = handles().find(T::is, number, in.thread);
  if (here.how == handle_table::state::found && &here.what->owner == &in) [[likely]]
    return static_cast<T&>(*here.what);
  throw_not_found(here.how);
}

[[noreturn]] void throw_wrong_connection();
/// \errors errc::timed_out, always: for a call that has not begun at its deadline.
[[noreturn]] void throw_not_begun();

/// Returns memory of the peer. \errors `misuse`; errc::wrong_connection, out_of_range.
inline remote_mr_slice remote_slice(connection_object& at, handle remote, std::uint64_t offset,
                                    std::uint64_t bytes) {
  const remote_object& what = found<remote_object>(at.owner, remote);
  if (what.connection != at.number) [[unlikely]]
    throw_wrong_connection();
  return what.slice.slice(offset, bytes);
}

/// The time that a caller gives, from the moment of the call.
class call_time {
 public:
  explicit call_time(std::int64_t timeout_us) noexcept : timeout_us_{timeout_us} {}
  /// Returns when a call ends that has not begun. One that takes only what is there always begins.
  [[nodiscard]] time_point deadline() const noexcept {
    return timeout_us_ > 0 ? deadline_ : time_point::max();
  }
  /// Returns what is left.
  [[nodiscard]] std::int64_t left_us() const noexcept {
    if (timeout_us_ <= 0) return timeout_us_;
    const auto left = deadline_ - std::chrono::steady_clock::now();
    return std::max<std::int64_t>(0, std::chrono::ceil<std::chrono::microseconds>(left).count());
  }

 private:
  const std::int64_t timeout_us_;
  const time_point deadline_ =
      detail::after(std::chrono::steady_clock::now(), span_of(timeout_us_));
};

/// A call that a foreign thread waits for: keeps its outcome for that thread.
class foreign_call : public foreign_calls::call {
 public:
  /// Waits for the end. A call that has not begun at `deadline` never does.
  int made_by(handle number, kind of, time_point deadline = time_point::max()) {
    const std::shared_ptr<foreign_calls> calls = handles().calls_of(number);
    if (calls == nullptr) {
      // The handle may have been closed since it was found.
      const bool is_closed = handles().find(of, number).how == handle_table::state::bad;
      return is_closed ? bad_handle(of) : wrong_thread();
    }
    if (runs_context) return in_callback();
    if (!calls->submit(*this)) return bad_handle(of);
    if (!wait_until(deadline)) {
      if (calls->take_back(*this)) throw_not_begun();
      static_cast<void>(wait_until(time_point::max()));
    }
    return how_.status == CORDMA_OK ? CORDMA_OK : note(how_);
  }

 protected:
  /// Notes what the context's thread was told, and ends the call.
  void end_with(int status) noexcept {
    if (status != CORDMA_OK) how_ = {status, cordma_error_text()};
    end();
  }

 private:
  outcome how_;
};

/// Calls `f(what, timeout_us)` on the thread of what the handle names, with what is left of the
/// time. `f` returns a status and does not wait.
template <class T, class F>
int enter_within(handle number, std::int64_t timeout_us, F f) noexcept {
  const auto here = handles().find(T::is, number);
  if (here.how == handle_table::state::found) [[likely]]
    return guarded([&] { return f(static_cast<T&>(*here.what), timeout_us); });
  if (here.how == handle_table::state::bad) return bad_handle(T::is);
  struct entering final : foreign_call {
    entering(handle of, std::int64_t timeout_us, F& what) noexcept
        : number{of}, time{timeout_us}, call{what} {}
    void run() noexcept override {
      // A handle that was closed meanwhile is bad now, and none is foreign here.
      const auto now = handles().find(T::is, number);
      end_with(now.how == handle_table::state::found
                   ? guarded([&] { return call(static_cast<T&>(*now.what), time.left_us()); })
                   : bad_handle(T::is));
    }
    const handle number;
    const call_time time;
    F& call;
  };
  return guarded([&] {
    entering one{number, timeout_us, f};
    return one.made_by(number, T::is, one.time.deadline());
  });
}

/// Calls `f(what)` on the thread of what the handle names, without a deadline.
template <class T, class F>
int enter(handle number, F f) noexcept {
  return enter_within<T>(number, -1,
                         [&f](T& what, std::int64_t /*timeout_us*/) { return f(what); });
}

/// Gives what an operation returned to `take`, which writes it for the program.
template <class Op, class Take>
int taken(Op& op, Take& take) {
  if constexpr (std::is_void_v<decltype(op.take())>) {
    op.take();
    take();
  } else {
    take(op.take());
  }
  return CORDMA_OK;
}

/// A blocking call of a foreign thread: its operation runs on the context's.
template <class T, class Start, class Take>
class waiting_call final : public foreign_call {
  using op_type = std::invoke_result_t<Start&, T&>;

 public:
  waiting_call(handle number, std::int64_t timeout_us, Start& start, Take& take) noexcept
      : number_{number}, time_{timeout_us}, start_{start}, take_{take} {}
  [[nodiscard]] time_point deadline() const noexcept { return time_.deadline(); }

  void run() noexcept override {
    bool waits = false;
    const int status = guarded([&] {
      const auto here = handles().find(T::is, number_);
      if (here.how != handle_table::state::found) return bad_handle(T::is);
      T& what = static_cast<T&>(*here.what);
      context& in = what.owner;  // Starting a disconnect ends `what`.
      scheduler& on = in.rt.executor();
      op_.emplace(start_(what), time_.left_us());
      if (op_->begin(on)) return taken(*op_, take_);
      in.waits.push_back(*op_);
      op_->call_at_end(&on_end, this);
      op_->arm(on);
      waits = true;
      return int{CORDMA_OK};
    });
    if (!waits) finish(status);
  }

 private:
  static void on_end(void* self) noexcept {
    auto& call = *static_cast<waiting_call*>(self);
    call.finish(guarded([&] { return taken(*call.op_, call.take_); }));
  }
  void finish(int status) noexcept {
    op_.reset();
    end_with(status);
  }

  const handle number_;
  const call_time time_;
  Start& start_;
  Take& take_;
  std::optional<bounded<op_type>> op_;
};

enum class if_late : bool { skip, begin };

/// Waits for the operation `start(what)`, and gives its value to `take`. Both run on the thread of
/// what the handle names. `late`: what becomes of a call whose time is up before it begins.
template <class T, class Start, class Take>
int block(handle number, std::int64_t timeout_us, Start start, Take take,
          if_late late = if_late::skip) noexcept {
  const auto here = handles().find(T::is, number);
  if (here.how == handle_table::state::found) [[likely]] {
    return guarded([&] {
      T& what = static_cast<T&>(*here.what);
      context& in = what.owner;
      if (runs_context) return in_callback();
      bounded op{start(what), timeout_us};
      if (!op.begin(in.rt.executor())) in.finish(op);
      in.kick();
      return taken(op, take);
    });
  }
  if (here.how == handle_table::state::bad) return bad_handle(T::is);
  return guarded([&] {
    waiting_call<T, Start, Take> call{number, timeout_us, start, take};
    return call.made_by(number, T::is, late == if_late::skip ? call.deadline() : time_point::max());
  });
}

}  // namespace cordma::c
