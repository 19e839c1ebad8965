// Pools in XRC domains: whose messages come by number, and complete at one driver.
#include "support/held.hpp"
#include "support/loopback.hpp"
#include "support/outcome.hpp"
#include "support/skip.hpp"

#include <cordma/coro/when_all.hpp>
#include <cordma/queue/shared_receives.hpp>

#include <catch2/catch.hpp>

#include <memory>
#include <string>
#include <utility>
#include <vector>

using namespace cordma;
using Catch::Matchers::Contains;
using test::loopback;

namespace {

constexpr std::size_t buffer_bytes = 64;
constexpr verbs::queue_pair_capabilities few_sends{.send_wr_max = 16};

bool has_xrc() { return verbs::context{test::device_name()}.limits().xrc; }

/// A pool in a domain, and an initiator that leads to a target of it.
struct xrc_link {
  explicit xrc_link(std::uint32_t buffers, completion_queue_driver* of_pool = nullptr)
      : pool{std::make_unique<shared_receives>(link.pd, link.allocator(verbs::access::local_write),
                                               shared_receives_options{.buffers = buffers,
                                                                       .buffer_bytes = buffer_bytes,
                                                                       .for_messages = true,
                                                                       .xrc_domain = &domain},
                                               of_pool != nullptr ? of_pool : &link.driver)} {
    link.connect(initiator, target);
  }
  void send(unsigned count) {
    const local_mr word = link.memory(8);
    const detail::request_destination to{.number = pool->num()};
    for (unsigned n = 0; n < count; ++n)
      link.run(
          initiator.await(detail::xrc_request<send_request<1>>{cordma::send(word.slice()), to}));
  }

  loopback link{{.connected = false}};
  verbs::xrc_domain domain{link.ctx};
  queue_pair initiator{link.driver, link.pd,
                       few_sends,   link.port.message_max_bytes,
                       nullptr,     verbs::queue_pair_type::xrc_initiator};
  queue_pair target{link.driver, link.pd,
                    few_sends,   link.port.message_max_bytes,
                    nullptr,     verbs::queue_pair_type::xrc_target,
                    &domain};
  std::unique_ptr<shared_receives> pool;
};

}  // namespace

TEST_CASE("a pool in a domain has its CQEs at one driver, and gives them back", "[queue][device]") {
  if (!has_xrc()) CORDMA_SKIP("rxe has no XRC");
  xrc_link x{8};
  const unsigned with_pool = x.link.driver.room();
  CHECK(x.pool->num() != 0);
  CHECK(x.pool->promised() == 0);
  x.pool.reset();
  CHECK(x.link.driver.room() == with_pool + 8);
}

TEST_CASE("a driver without room for a pool in a domain refuses it", "[queue][device]") {
  if (!has_xrc()) CORDMA_SKIP("rxe has no XRC");
  loopback link{{.connected = false}};
  verbs::xrc_domain domain{link.ctx};
  completion_queue_driver tight{link.executor, link.ctx, {.depth = 4}};
  const unsigned room = tight.room();
  const failure why = test::failure_of([&] {
    shared_receives{link.pd,
                    link.allocator(verbs::access::local_write),
                    {.buffers = room + 1, .for_messages = true, .xrc_domain = &domain},
                    &tight};
  });
  CHECK(why.code == errc::limit_exceeded);
  CHECK_THAT(why.to_string(), Contains("shared_receives"));
  CHECK(tight.room() == room);
}

TEST_CASE("a pool in a domain may go with messages that nobody took", "[queue][device]") {
  if (!has_xrc()) CORDMA_SKIP("rxe has no XRC");
  xrc_link x{8};
  x.send(3);
  static_cast<void>(x.link.run(x.pool->next_message()));
  const detail::request_destination gone{.number = x.pool->num()};
  x.pool.reset();
  const auto late = x.link.outcome(x.initiator.await(
      detail::xrc_request<send_request<1>>{cordma::send(const_local_mr_slice{}), gone}));
  CHECK(test::code_of(late) == wc_errc::remote_invalid_request);
}

TEST_CASE("each buffer of a pool in a domain serves again, and a low stock is told",
          "[queue][device]") {
  if (!has_xrc()) CORDMA_SKIP("rxe has no XRC");
  xrc_link x{4};
  x.link.events.add(*x.pool);
  for (unsigned round = 0; round < 5; ++round) {
    std::vector<shared_receives::message> kept;
    auto send_all = [&]() -> task<> {
      const local_mr word = x.link.memory(8);
      const detail::request_destination to{.number = x.pool->num()};
      for (unsigned n = 0; n < 4; ++n)
        co_await x.initiator.await(
            detail::xrc_request<send_request<1>>{cordma::send(word.slice()), to});
    };
    x.link.run(when_all(x.pool->runs_low(2), send_all()));
    for (unsigned n = 0; n < 4; ++n) kept.push_back(x.link.run(x.pool->next_message()));
    for (const shared_receives::message& m : kept) CHECK(m.qpn() == x.target.verbs().num());
  }
}

TEST_CASE("a pool in a domain is reaped where the program polls itself", "[queue][device]") {
  if (!has_xrc()) CORDMA_SKIP("rxe has no XRC");
  xrc_link x{8};
  completion_queue_driver manual{x.link.executor, x.link.ctx, {.mode = completion_mode::manual}};
  shared_receives pool{
      x.link.pd,
      x.link.allocator(verbs::access::local_write),
      {.buffers = 2, .buffer_bytes = buffer_bytes, .for_messages = true, .xrc_domain = &x.domain},
      &manual};
  const detail::request_destination to{.number = pool.num()};
  x.link.run(x.initiator.await(
      detail::xrc_request<send_request<1>>{cordma::send(const_local_mr_slice{}), to}));
  CHECK(manual.reap() == 1);
  CHECK(x.link.run(pool.next_message()).size_bytes() == 0);
}

TEST_CASE("waits for a pool in a domain end when its completion queue fails", "[queue][device]") {
  if (!has_xrc()) CORDMA_SKIP("rxe has no XRC");
  xrc_link x{8};
  x.link.events.add(*x.pool);
  const request_outcome why{.code = errc::cq_overrun, .call = "ibv_get_async_event"};
  const auto fail = [&]() -> task<> {
    x.link.driver.fail(why);
    co_return;
  };
  const auto [first, second, low, unused] =
      x.link.run(when_all(as_result(x.pool->next_message()), as_result(x.pool->next_message()),
                          as_result(x.pool->runs_low(4)), fail()));
  CHECK(low.has_value());
  x.link.driver.fail({.code = errc::device_failed, .call = "later"});
  const auto late = x.link.outcome(x.pool->next_message());
  for (const auto* const wait : {&first, &second, &late}) {
    REQUIRE(wait->has_failure());
    CHECK(wait->failure().code == make_error_code(errc::cq_overrun));
    CHECK_THAT(wait->failure().to_string(),
               Contains("receive queue " + std::to_string(x.pool->num())));
  }
}

TEST_CASE("a failed port ends no wait for a pool in a domain, which other ports may serve",
          "[queue][device]") {
  if (!has_xrc()) CORDMA_SKIP("rxe has no XRC");
  xrc_link x{8};
  const std::uint8_t other_port = std::uint8_t(x.link.port.number + 1);
  x.link.driver.fail({.code = errc::device_failed, .call = "ibv_get_async_event"}, other_port);
  x.send(1);
  CHECK(x.link.run(x.pool->next_message()).size_bytes() == 8);
}
