// An executor that waits in an io_context of asio.
#include <cordma/asio.hpp>

#include "io/wires.hpp"

#include <cordma/coro/event.hpp>
#include <cordma/coro/task.hpp>
#include <cordma/detail/io/fd_watch.hpp>
#include <cordma/io/executor.hpp>

#include <asio/steady_timer.hpp>
#include <catch2/catch.hpp>

#include <chrono>
#include <memory>
#include <optional>
#include <thread>

using namespace cordma;
using namespace std::chrono_literals;

namespace {

executor_options waits_in(asio::io_context& context) {
  executor_options options;
  options.reactor = std::make_unique<asio_reactor>(context);
  return options;
}

}  // namespace

TEST_CASE("an executor runs the handlers of its io_context", "[asio]") {
  asio::io_context context{1};
  executor ex{waits_in(context)};
  event rang{ex};
  asio::steady_timer timer{context, 1ms};
  timer.async_wait([&](const asio::error_code&) { rang.set(); });
  ex.run(rang.wait());
  CHECK(rang.is_set());
}

TEST_CASE("an executor is not run in a handler of its io_context", "[asio]") {
  asio::io_context context{1};
  executor ex{waits_in(context)};
  std::optional<failure> why;
  asio::post(context, [&] {
    try {
      ex.run(ex.sleep_for(0ms));
    } catch (const error& e) {
      why = e.failure();
    }
  });
  context.poll();
  REQUIRE(why.has_value());
  CHECK(why->code == errc::refused);
}

TEST_CASE("what waits in an io_context hears of timers, descriptors and other threads", "[asio]") {
  asio::io_context context{1};
  executor ex{waits_in(context)};
  const auto before = ex.now();
  ex.run(ex.sleep_for(2ms));
  CHECK(ex.now() - before >= 2ms);

  test::wires w;
  std::jthread writer{[&] { [[maybe_unused]] const auto n = ::write(w.far.get(), "x", 1); }};
  ex.run(readable(ex, w.near.get()));
  writer.join();
  char byte = 0;
  CHECK(::read(w.near.get(), &byte, 1) == 1);

  event posted{ex};
  const std::jthread poster{[&] { ex.post([&] { posted.set(); }); }};
  ex.run(posted.wait());
  event by_handler{ex};
  const std::jthread other{[&] { asio::post(context, [&] { by_handler.set(); }); }};
  ex.run(by_handler.wait());
  CHECK((posted.is_set() && by_handler.is_set()));
}

TEST_CASE("an executor whose io_context waits sleeps in the kernel", "[asio]") {
  asio::io_context context{1};
  executor ex{waits_in(context)};
  ex.run(ex.sleep_for(1ms));
  const executor_counters before = ex.counters();
  ex.run(ex.sleep_for(20ms));
  const executor_counters after = ex.counters();
  CHECK(after.waits > before.waits);
  CHECK(after.iterations - before.iterations < 100);
}

TEST_CASE("an executor works on when its io_context was stopped", "[asio]") {
  asio::io_context context{1};
  executor ex{waits_in(context)};
  context.stop();
  ex.run(ex.sleep_for(1ms));
  event posted{ex};
  const std::jthread poster{[&] { ex.post([&] { posted.set(); }); }};
  ex.run(posted.wait());
  CHECK(posted.is_set());
}

TEST_CASE("an io_context outlives the executor that waited in it", "[asio]") {
  asio::io_context context{1};
  {
    executor ex{waits_in(context)};
    ex.run(ex.sleep_for(1ms));
  }
  bool ran = false;
  asio::post(context, [&] { ran = true; });
  context.restart();
  context.run();
  CHECK(ran);
}
