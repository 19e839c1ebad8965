#include <cordma/coro/stop.hpp>

#include "support/aborts.hpp"
#include "support/manual_executor.hpp"

#include <cordma/coro/event.hpp>
#include <cordma/coro/task.hpp>

#include <catch2/catch.hpp>

#include <memory>

using namespace cordma;

namespace {

struct recorder : stop_callback {
  explicit recorder(int& calls) noexcept : stop_callback{&called}, calls_{&calls} {}
  static void called(stop_callback& self) noexcept {
    auto& r = static_cast<recorder&>(self);
    ++*r.calls_;
    delete r.victim;
    if (r.again != nullptr) r.again->request_stop();
  }
  int* calls_;
  stop_source* again = nullptr;
  recorder* victim = nullptr;
};

}  // namespace

TEST_CASE("a stop calls every callback once, and those that left not at all", "[coro]") {
  int calls = 0;
  stop_source source;
  recorder a{calls}, b{calls};
  stop_token{source}.register_callback(a);
  stop_token{source}.register_callback(b);
  {
    recorder c{calls};
    stop_token{source}.register_callback(c);
  }
  a.unlink();
  source.request_stop();
  source.request_stop();
  CHECK(calls == 1);
  CHECK(stop_token{source}.stop_requested());
}

TEST_CASE("the default token never stops", "[coro]") {
  int calls = 0;
  recorder a{calls};
  const stop_token never;
  never.register_callback(a);
  CHECK_FALSE(never.stop_possible());
  CHECK_FALSE(never.stop_requested());
  CHECK_FALSE(a.is_linked());
}

TEST_CASE("a callback may stop its source again, destroy another and destroy the source",
          "[coro]") {
  int calls = 0;
  auto source = std::make_unique<stop_source>();
  recorder first{calls};
  first.again = source.get();
  first.victim = new recorder{calls};
  stop_token{*source}.register_callback(first);
  stop_token{*source}.register_callback(*first.victim);

  struct destroyer : stop_callback {
    explicit destroyer(std::unique_ptr<stop_source>& s) : stop_callback{&called}, source{s} {}
    static void called(stop_callback& self) noexcept {
      static_cast<destroyer&>(self).source.reset();
    }
    std::unique_ptr<stop_source>& source;
  } second{source};
  stop_token{*source}.register_callback(second);
  recorder third{calls};
  stop_token{*source}.register_callback(third);
  source->request_stop();
  CHECK(source == nullptr);
  CHECK(calls == 2);
}

TEST_CASE("registering after the stop is a broken contract", "[coro]") {
  CHECK(support::run_in_child([] {
          int calls = 0;
          stop_source source;
          source.request_stop();
          recorder a{calls};
          stop_token{source}.register_callback(a);
        }).aborted);
}

TEST_CASE("tasks inherit the stop token through every level", "[coro]") {
  support::manual_executor executor;
  event never;
  struct levels {
    static task<> down(int depth, event& e) {
      if (depth > 0) {
        co_await down(depth - 1, e);
      } else {
        co_await e.wait();
      }
    }
  };
  support::started outer{executor.scheduler, levels::down(20, never)};
  executor.settle();
  CHECK_FALSE(outer.has_ended());
  outer.request_stop();
  CHECK_FALSE(outer.has_ended());  // A stop schedules; it resumes nobody by itself.
  executor.settle();
  REQUIRE(outer.has_ended());
  CHECK_THROWS_AS((*outer).take(), cancelled);
}

TEST_CASE("what is awaited after the stop ends at once", "[coro]") {
  support::manual_executor executor;
  event never;
  int stops = 0;
  const auto stubborn = [](event& e, int& count) -> task<> {
    for (int n = 0; n < 3; ++n) {
      const result<void> outcome = co_await as_result(e.wait());
      if (outcome.is_cancelled()) ++count;
    }
  };
  support::started outer{executor.scheduler, stubborn(never, stops)};
  outer.request_stop();
  executor.settle();
  CHECK(outer.has_ended());
  CHECK(stops == 3);
}
