#pragma once

// cordma in programs of asio: an executor that waits in an `asio::io_context`, and operations that
// take asio's completion tokens. `cordma.hpp` does not include this header, and the library does
// not need asio. docs/asio.md is the guide.

#if !__has_include(<asio/io_context.hpp>)
#error "cordma/asio.hpp needs asio: Debian's package is libasio-dev"
#endif

#include <cordma/coro/operation.hpp>
#include <cordma/detail/coro/frame_cache.hpp>
#include <cordma/io/reactor.hpp>

#include <asio/any_io_executor.hpp>
#include <asio/associated_cancellation_slot.hpp>
#include <asio/associated_executor.hpp>
#include <asio/async_result.hpp>
#include <asio/dispatch.hpp>
#include <asio/error.hpp>
#include <asio/executor_work_guard.hpp>
#include <asio/io_context.hpp>
#include <asio/posix/descriptor.hpp>
#include <asio/posix/stream_descriptor.hpp>
#include <asio/post.hpp>

#include <exception>
#include <memory>
#include <optional>
#include <system_error>
#include <type_traits>
#include <utility>
#include <variant>

namespace cordma {

/// Waits in an `io_context`, so that one thread runs an executor and the context's handlers.
///
///     asio::io_context context{1};
///     runtime_options options;
///     options.executor.reactor = std::make_unique<asio_reactor>(context);
///     runtime rt{std::move(options)};
///     rt.run(…);  // In place of context.run().
///
/// `executor::run` runs the context's handlers, too: between its own iterations, and while it
/// waits. They may start and end what the executor's coroutines wait for, and must not throw. While
/// the reactor lives, the context does not run out of work; one that the program has stopped is
/// waited in no more.
/// \errors errc::refused, from the first `executor::run`: it was called in a handler of the
/// context,
///   inside of which asio does not count its work.
/// \thread the executor's; the context must outlive it, and no other thread runs the context.
/// \cost a turn of the context in each iteration that asks the kernel.
class asio_reactor final : public reactor {
 public:
  /// \errors as `reactor::on_epoll`.
  explicit asio_reactor(asio::io_context& context)
      : context_{context},
        work_{context.get_executor()},
        inner_{reactor::on_epoll()},
        readable_{context, inner_->arm()} {}
  ~asio_reactor() override { readable_.release(); }

  [[nodiscard]] const char* name() const noexcept override { return "asio"; }
  void enable() override {
    if (context_.get_executor().running_in_this_thread())
      throw error{{.code = errc::refused,
                   .call = "executor::run",
                   .detail = "it was called in a handler of its io_context: call it in place of "
                             "io_context::run"}};
    inner_->enable();
  }
  void watch(fd_watch& w) override { inner_->watch(w); }
  void unwatch(fd_watch& w) noexcept override { inner_->unwatch(w); }
  void set_alarm(time_point at) noexcept override { inner_->set_alarm(at); }
  void poll() noexcept override {
    inner_->poll();
    alarm_fired_ |= inner_->take_alarm();
    // Handlers that post others must not starve the executor.
    for (unsigned n = 0; n < handlers_per_poll && context_.poll_one() != 0; ++n) {
    }
  }
  void wait() noexcept override {
    if (context_.stopped()) {
      inner_->wait();
    } else {
      static_cast<void>(inner_->arm());
      if (!std::exchange(*is_waiting_, true)) wait_for_inner();
      context_.run_one();
    }
    poll();
  }
  void wake() noexcept override { inner_->wake(); }

 private:
  static constexpr unsigned handlers_per_poll = 64;

  void wait_for_inner() {
    struct ended {
      using allocator_type = frame_cache::detail::allocator<void>;
      [[nodiscard]] allocator_type get_allocator() const noexcept { return {}; }
      void operator()(const std::error_code& /*why*/) const noexcept { *is_waiting = false; }
      std::shared_ptr<bool> is_waiting;  // The reactor may be gone.
    };
    readable_.async_wait(asio::posix::descriptor_base::wait_read, ended{is_waiting_});
  }

  asio::io_context& context_;
  asio::executor_work_guard<asio::io_context::executor_type> work_;
  std::unique_ptr<reactor> inner_;
  asio::posix::stream_descriptor readable_;
  std::shared_ptr<bool> is_waiting_ = std::make_shared<bool>(false);
};

namespace detail {

template <class T>
struct asio_signature {
  using type = void(std::exception_ptr, T);
};
template <>
struct asio_signature<void> {
  using type = void(std::exception_ptr);
};

/// The value beside an error.
template <class T>
T nothing_for() {
  if constexpr (std::is_default_constructible_v<T>) {
    return T{};
  } else {
    return T{cancelled_result};
  }
}

/// An operation that completes a handler of asio, in a handler of the context. It deletes itself.
template <class Op, class Handler>
class asio_wait final : private waiter, public frame_cache::recycled {
  using value = value_of<Op>;
  using stored = std::conditional_t<std::is_void_v<value>, std::monostate, value>;
  using context_executor = asio::io_context::executor_type;

 public:
  static void start(asio::io_context& context, Op&& op, Handler&& handler) {
    auto* const self = new asio_wait{context, std::move(op), std::move(handler)};
    bool has_ended = true;
    try {
      has_ended = self->op_.start(*self, {nullptr, stop_token{self->stop_}});
    } catch (...) {
      self->not_started_ = std::current_exception();
    }
    if (has_ended) self->end();
  }

 private:
  asio_wait(asio::io_context& context, Op&& op, Handler&& handler)
      : waiter{&on_end}, op_{std::move(op)}, handler_{std::move(handler)}, in_{context} {
    auto slot = asio::get_associated_cancellation_slot(handler_);
    if (!slot.is_connected()) return;
    slot.assign([this](asio::cancellation_type kind) {
      // A posted request may have happened: that is no total or partial cancellation.
      if ((kind & asio::cancellation_type::terminal) != asio::cancellation_type::none)
        stop_.request_stop();
    });
  }
  static std::coroutine_handle<> on_end(waiter& self) noexcept {
    static_cast<asio_wait&>(self).end();
    return std::noop_coroutine();
  }
  void end() noexcept {
    struct completion {
      using allocator_type = frame_cache::detail::allocator<void>;
      [[nodiscard]] allocator_type get_allocator() const noexcept { return {}; }
      void operator()() { self.release()->complete(); }
      std::unique_ptr<asio_wait> self;
    };
    asio::post(in_.get_executor(), completion{std::unique_ptr<asio_wait>{this}});
  }
  void complete() {
    if (auto slot = asio::get_associated_cancellation_slot(handler_); slot.is_connected())
      slot.clear();
    std::exception_ptr thrown;
    std::optional<stored> got;
    try {
      if (not_started_) std::rethrow_exception(std::move(not_started_));
      if constexpr (std::is_void_v<value>) {
        op_.take();
      } else {
        got.emplace(op_.take());
      }
    } catch (const cancelled&) {
      thrown = std::make_exception_ptr(
          std::system_error{asio::error::make_error_code(asio::error::operation_aborted)});
    } catch (...) {
      thrown = std::current_exception();
    }
    Handler handler = std::move(handler_);
    const context_executor here = in_.get_executor();
    const auto where = asio::get_associated_executor(handler, here);
    delete this;
    auto call = [handler = std::move(handler), thrown = std::move(thrown),
                 got = std::move(got)]() mutable {
      if constexpr (std::is_void_v<value>) {
        static_cast<void>(got);
        std::move(handler)(std::move(thrown));
      } else {
        std::move(handler)(std::move(thrown), got ? std::move(*got) : nothing_for<value>());
      }
    };
    // asio would allocate to see, through an any_io_executor, that the context runs this.
    if (is_of(where, here)) return call();
    asio::dispatch(where, std::move(call));
  }
  template <class Executor>
  static bool is_of(const Executor& where, const context_executor& here) noexcept {
    if constexpr (std::is_same_v<Executor, context_executor>) {
      return where == here;
    } else if constexpr (std::is_same_v<Executor, asio::any_io_executor>) {
      const auto* const target = where.template target<context_executor>();
      return target != nullptr && *target == here;
    } else {
      return false;
    }
  }

  Op op_;
  Handler handler_;
  asio::io_context& in_;
  stop_source stop_;
  std::exception_ptr not_started_;
};

}  // namespace detail

/// Starts an operation that ends with a completion token of asio: a callback,
/// `asio::use_awaitable`, `asio::use_future`, …
///
///     std::size_t n = co_await async_await(context, conn.write(here, there), asio::use_awaitable);
///
/// The handler is called as `void(std::exception_ptr, T)`, or `void(std::exception_ptr)` for an
/// operation without value; after an error the value is `T{}`. `as_result(op)` gives a failure as a
/// value instead. Terminal cancellation stops the operation, which then ends with
/// `asio::error::operation_aborted` unless it has ended before. Until then it is no work of the
/// context: the executor that waits in it is.
/// \param context  that of the executor which the operation belongs to.
/// \errors as the operation.
/// \thread the executor's, also for the cancellation. The handler is called by its own executor, or
///   by the context.
/// \cost a handler of the context, and no malloc once warm.
template <operation Op, class Token>
auto async_await(asio::io_context& context, Op&& op, Token&& token) {
  using value = value_of<Op>;
  static_assert(!std::is_lvalue_reference_v<Op>, "move the operation: it outlives this call");
  static_assert(std::is_void_v<value> || std::is_default_constructible_v<value> ||
                    std::is_constructible_v<value, detail::cancelled_t>,
                "after an error the handler gets a T{}: use as_result(op)");
  return asio::async_initiate<Token, typename detail::asio_signature<value>::type>(
      [&context](auto handler, Op started) {
        detail::asio_wait<Op, decltype(handler)>::start(context, std::move(started),
                                                        std::move(handler));
      },
      token, std::forward<Op>(op));
}

}  // namespace cordma
