// Operations that end with completion tokens of asio.
#include <cordma/asio.hpp>

#include "support/allocations.hpp"
#include "support/connected_pair.hpp"
#include "support/skip.hpp"

#include <cordma/coro/event.hpp>
#include <cordma/coro/task.hpp>
#include <cordma/messages/message_stream.hpp>

#include <asio/awaitable.hpp>
#include <asio/bind_cancellation_slot.hpp>
#include <asio/bind_executor.hpp>
#include <asio/cancellation_signal.hpp>
#include <asio/co_spawn.hpp>
#include <asio/experimental/awaitable_operators.hpp>
#include <asio/steady_timer.hpp>
#include <asio/strand.hpp>
#include <asio/use_awaitable.hpp>
#include <asio/use_future.hpp>
#include <catch2/catch.hpp>

#include <chrono>
#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <string>

using namespace cordma;
using namespace std::chrono_literals;
using asio::use_awaitable;

namespace {

/// A context, and an executor that waits in it. `run` is what a program does.
struct asio_program {
  asio::io_context context{1};
  executor ex{[this] {
    executor_options options;
    options.reactor = std::make_unique<asio_reactor>(context);
    return options;
  }()};

  /// Runs a coroutine of asio to its end; throws what it threw.
  void run(asio::awaitable<void> body) {
    event over{ex};
    std::exception_ptr thrown;
    asio::co_spawn(context, std::move(body), [&](std::exception_ptr why) {
      thrown = why;
      over.set();
    });
    ex.run(over.wait());
    if (thrown) std::rethrow_exception(thrown);
  }
  void settle() {
    ex.run(ex.sleep_for(1us));
    context.poll();
  }
};

task<int> give(int value) { co_return value; }
/// An operation that cannot start, as one for which there is no memory.
struct without_memory : operation_base<without_memory> {
  using value_type = int;
  bool start(waiter&, const environment&) { throw std::bad_alloc{}; }
  [[nodiscard]] bool failed() const noexcept { return false; }
  int take() noexcept { return 0; }
};

task<int> refuse() {
  throw error{{.code = errc::refused, .call = "here"}};
  co_return 0;
}

}  // namespace

TEST_CASE("a callback gets the value of an operation, never inside the call", "[asio]") {
  asio_program p;
  std::optional<int> got;
  const auto callback = [&](std::exception_ptr why, int value) {
    CHECK(why == nullptr);
    got = value;
  };
  async_await(p.context, give(7), callback);
  CHECK_FALSE(got.has_value());
  p.settle();
  CHECK(got == 7);
}

TEST_CASE("a callback is called by its executor", "[asio]") {
  asio_program p;
  auto strand = asio::make_strand(p.context);
  event set{p.ex}, called{p.ex};
  bool inside = false;
  async_await(p.context, set.wait(), asio::bind_executor(strand, [&](std::exception_ptr) {
                inside = strand.running_in_this_thread();
                called.set();
              }));
  set.set();
  p.ex.run(called.wait());
  CHECK(inside);
}

TEST_CASE("a coroutine of asio awaits operations, with their values and failures", "[asio]") {
  asio_program p;
  event set{p.ex};
  bool ended = false;
  p.run([&]() -> asio::awaitable<void> {
    const int seven = co_await async_await(p.context, give(7), use_awaitable);
    CHECK(seven == 7);
    asio::post(p.context, [&] { set.set(); });
    co_await async_await(p.context, set.wait(), use_awaitable);
    bool is_refused = false;
    try {
      co_await async_await(p.context, refuse(), use_awaitable);
    } catch (const error& e) {
      is_refused = e.code() == errc::refused;
    }
    CHECK(is_refused);
    const result<int> as_a_value =
        co_await async_await(p.context, as_result(refuse()), use_awaitable);
    CHECK(as_a_value.failure().code == errc::refused);
    ended = true;
  }());
  CHECK(ended);
}

TEST_CASE("a future gets the outcome of an operation", "[asio]") {
  asio_program p;
  event set{p.ex};
  std::future<void> over = async_await(p.context, set.wait(), asio::use_future);
  std::future<int> refused = async_await(p.context, refuse(), asio::use_future);
  set.set();
  p.settle();
  CHECK_NOTHROW(over.get());
  CHECK_THROWS_AS(refused.get(), error);
}

TEST_CASE("a cancellation slot stops an operation", "[asio]") {
  asio_program p;
  event never{p.ex}, called{p.ex};
  asio::cancellation_signal signal;
  std::error_code code;
  const auto callback = [&](std::exception_ptr why) {
    try {
      std::rethrow_exception(why);
    } catch (const std::system_error& e) {
      code = e.code();
    }
    called.set();
  };
  async_await(p.context, never.wait(), asio::bind_cancellation_slot(signal.slot(), callback));
  signal.emit(asio::cancellation_type::total);
  p.settle();
  CHECK_FALSE(called.is_set());
  signal.emit(asio::cancellation_type::terminal);
  CHECK_FALSE(called.is_set());
  p.ex.run(called.wait());
  CHECK(code == asio::error::operation_aborted);
  signal.emit(asio::cancellation_type::terminal);  // The operation has gone.
}

TEST_CASE("a cancellation where no scheduler is known ends after the signal", "[asio]") {
  asio_program p;
  event never;
  bool called = false;
  asio::cancellation_signal signal;
  const auto callback = [&](std::exception_ptr) { called = true; };
  async_await(p.context, never.wait(), asio::bind_cancellation_slot(signal.slot(), callback));
  signal.emit(asio::cancellation_type::all);
  CHECK_FALSE(called);
  p.settle();
  CHECK(called);
}

TEST_CASE("an operation that cannot start ends with what it threw, and leaves nothing", "[asio]") {
  asio_program p;
  asio::cancellation_signal signal;
  auto held = std::make_shared<int>(0);
  const std::weak_ptr<int> left = held;
  std::exception_ptr thrown;
  auto callback = [&thrown, held = std::move(held)](std::exception_ptr why, int) {
    thrown = std::move(why);
  };
  async_await(p.context, without_memory{},
              asio::bind_cancellation_slot(signal.slot(), std::move(callback)));
  CHECK(thrown == nullptr);
  p.settle();
  REQUIRE(thrown != nullptr);
  CHECK_THROWS_AS(std::rethrow_exception(thrown), std::bad_alloc);
  CHECK(left.expired());
  CHECK_FALSE(signal.slot().has_handler());
}

TEST_CASE("a coroutine of asio goes on after an operation that cannot start", "[asio]") {
  asio_program p;
  bool goes_on = false;
  p.run([&]() -> asio::awaitable<void> {
    try {
      co_await async_await(p.context, without_memory{}, use_awaitable);
    } catch (const std::bad_alloc&) {
      goes_on = true;
    }
  }());
  CHECK(goes_on);
}

TEST_CASE("a connection serves coroutines of asio", "[asio][device]") {
  asio::io_context context{1};
  runtime_options options;
  options.executor.reactor = std::make_unique<asio_reactor>(context);
  connection_options lends;
  lends.agent.lending.bytes_max = 1 << 20;
  test::connected_pair link{std::move(options), {}, lends};
  bool ended = false;
  const auto body = [&]() -> asio::awaitable<void> {
    using namespace asio::experimental::awaitable_operators;
    connection& here = link.client;
    connection& there = link.server;
    local_mr mine = link.rt.memory().allocate_zeroed(64);
    const remote_mr lent = co_await async_await(context, here.request_remote_mr(64), use_awaitable);
    mine.slice().as<std::uint64_t>()[0] = 17;
    co_await async_await(context, here.write(mine.slice(0, 8), lent.slice(0, 8)), use_awaitable);
    co_await async_await(context, here.read(mine.slice(8, 8), lent.slice(0, 8)), use_awaitable);
    CHECK(mine.slice().as<std::uint64_t>()[1] == 17);
    const auto before =
        co_await async_await(context, here.compare_swap(lent.slice(0, 8), 17, 18), use_awaitable);
    CHECK(before == 17);
    // A timer of asio wins against a receive, which loses no message.
    asio::steady_timer soon{context, 1ms};
    there.post_recv(mine.slice(32, 8));
    const auto first = co_await (async_await(context, there.next_message(), use_awaitable) ||
                                 soon.async_wait(use_awaitable));
    CHECK(first.index() == 1);
    co_await async_await(context, here.send(mine.slice(0, 8)), use_awaitable);
    const message came = co_await async_await(context, there.next_message(), use_awaitable);
    CHECK(came.size_bytes == 8);
    message_stream from{std::move(here)}, to{std::move(there)};
    const std::string text = "text";
    co_await async_await(context, from.send(std::as_bytes(std::span{text})), use_awaitable);
    const stream_message words = co_await async_await(context, to.receive(), use_awaitable);
    CHECK(words.size_bytes() == 4);
    ended = true;
  };
  event over{link.rt.executor()};
  std::exception_ptr thrown;
  asio::co_spawn(context, body(), [&](std::exception_ptr why) {
    thrown = why;
    over.set();
  });
  link.rt.run(over.wait());
  if (thrown) std::rethrow_exception(thrown);
  CHECK(ended);
}

TEST_CASE("operations with completion tokens allocate nothing once warm", "[asio]") {
  if (!support::counts_allocations()) CORDMA_SKIP("allocations are not counted under a sanitizer");
  asio_program p;
  event set{p.ex};
  std::uint64_t allocated = 0;
  constexpr int rounds = 100;
  SECTION("callbacks") {
    event over{p.ex};
    int n = 0;
    std::function<void(std::exception_ptr)> next = [&](std::exception_ptr) {
      if (++n == rounds / 2) allocated = support::thread_allocation_count();
      if (n == rounds) {
        allocated = support::thread_allocation_count() - allocated;
        return over.set();
      }
      set.reset();
      async_await(p.context, set.wait(), std::ref(next));
      set.set();
    };
    next(nullptr);
    p.ex.run(over.wait());
  }
  SECTION("coroutines") {
    p.run([&]() -> asio::awaitable<void> {
      for (int n = 0; n < rounds; ++n) {
        if (n == rounds / 2) allocated = support::thread_allocation_count();
        const int seven = co_await async_await(p.context, give(7), use_awaitable);
        co_await async_await(p.context, p.ex.sleep_for(std::chrono::nanoseconds{seven}),
                             use_awaitable);
      }
      allocated = support::thread_allocation_count() - allocated;
    }());
  }
  CHECK(allocated == 0);
}
