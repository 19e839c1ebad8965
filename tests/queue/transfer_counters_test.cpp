#include <cordma/queue/transfer_counters.hpp>

#include "support/loopback.hpp"

#include <cordma/coro/with_timeout.hpp>

#include <catch2/catch.hpp>

#include <array>

using namespace cordma;
using namespace std::chrono_literals;
using test::loopback;

namespace {

request_counters of(const loopback& link, request_kind kind) {
  return link.driver.requests().of(kind);
}

/// Posted, completed, failed, refused, cancelled.
using five = std::array<std::uint64_t, 5>;
five all_of(const request_counters& c) {
  return {c.posted, c.completed, c.failed, c.refused, c.cancelled};
}

}  // namespace

TEST_CASE("every kind has a name of its own", "[queue]") {
  for (std::size_t a = 0; a < detail::request_kinds; ++a) {
    CHECK_FALSE(name_of(request_kind(a)).empty());
    for (std::size_t b = 0; b < a; ++b) CHECK(name_of(request_kind(a)) != name_of(request_kind(b)));
  }
}

TEST_CASE("requests are counted by their kind, once posted and once ended", "[queue][device]") {
  loopback link;
  const local_mr from = link.pattern(64);
  local_mr to = link.memory(64);
  for (int n = 0; n < 3; ++n) link.run(link.a->write(from, to.remote_slice()));
  for (int n = 0; n < 2; ++n) link.run(link.a->read(to.slice(), to.remote_slice()));
  link.run(link.a->compare_swap(to.remote_slice().slice(0, 8), 1, 2));
  link.run(link.a->fetch_add(to.remote_slice().slice(0, 8), 1));
  link.b->post_recv(to);
  link.run(link.a->send(from));
  link.run(link.b->next_message());
  CHECK(all_of(of(link, request_kind::write)) == five{3, 3, 0, 0, 0});
  CHECK(all_of(of(link, request_kind::read)) == five{2, 2, 0, 0, 0});
  CHECK(all_of(of(link, request_kind::atomic)) == five{2, 2, 0, 0, 0});
  CHECK(all_of(of(link, request_kind::send)) == five{1, 1, 0, 0, 0});
  CHECK(all_of(of(link, request_kind::receive)) == five{1, 1, 0, 0, 0});
  CHECK(all_of(of(link, request_kind::bind)) == five{});
  CHECK(link.driver.requests().stalls == 0);
}

TEST_CASE("one that fails, one that is refused and one that is stopped are told apart",
          "[queue][device]") {
  loopback link;
  const local_mr from = link.pattern(64);
  local_mr to = link.memory(64);
  link.run(link.a->write(from, to.remote_slice()));
  // Stopped before it begins: never posted.
  stop_source stop;
  stop.request_stop();
  struct nobody : waiter {
    nobody() noexcept
        : waiter{
              [](waiter&) noexcept -> std::coroutine_handle<> { return std::noop_coroutine(); }} {}
  } w;
  auto stopped = link.a->write(from, to.remote_slice());
  REQUIRE(stopped.start(w, {&link.executor, stop_token{stop}}));
  CHECK(all_of(of(link, request_kind::write)) == five{1, 1, 0, 0, 1});
  // The remote slice has too little room.
  CHECK(link.outcome(link.a->write(from, to.remote_slice().slice(0, 8))).has_failure());
  CHECK(all_of(of(link, request_kind::write)) == five{1, 1, 0, 1, 1});
  // A key that is none.
  const remote_mr_slice nowhere{to.remote_slice().address(), 64, to.remote_slice().rkey() ^ 0x5a5a};
  CHECK(link.outcome(link.a->write(from, nowhere)).has_failure());
  CHECK(all_of(of(link, request_kind::write)) == five{2, 1, 1, 1, 1});
  // The queue pair is in ERROR.
  CHECK(link.outcome(link.a->write(from, to.remote_slice())).has_failure());
  CHECK(all_of(of(link, request_kind::write)) == five{2, 1, 1, 2, 1});
}

TEST_CASE("a posted request whose wait is stopped is cancelled and completes all the same",
          "[queue][device]") {
  loopback link{{.cq = {.mode = completion_mode::manual}}};
  const local_mr from = link.pattern(64);
  local_mr to = link.memory(64);
  auto outcome = link.outcome(with_timeout(link.a->write(from, to.remote_slice()), 1ms));
  CHECK(outcome.failure().code == make_error_code(errc::timed_out));
  CHECK(all_of(of(link, request_kind::write)) == five{1, 0, 0, 0, 1});
  CHECK(of(link, request_kind::write).in_flight() == 1);
  const time_point deadline = link.executor.now() + 20s;
  while (link.driver.reap() == 0) REQUIRE(link.executor.now() < deadline);
  CHECK(all_of(of(link, request_kind::write)) == five{1, 1, 0, 0, 1});
  CHECK(of(link, request_kind::write).in_flight() == 0);
}

TEST_CASE("a wait for a message that is stopped is cancelled", "[queue][device]") {
  loopback link;
  local_mr to = link.memory(64);
  CHECK(link.outcome(with_timeout(link.b->recv(to), 1ms)).has_failure());
  CHECK(link.outcome(with_timeout(link.b->next_message(), 1ms)).has_failure());
  CHECK(all_of(of(link, request_kind::receive)) == five{1, 0, 0, 0, 2});
}

TEST_CASE("a receive that is not taken was refused", "[queue][device]") {
  loopback link;
  local_mr to = link.memory(64);
  const local_mr_slice stale = link.memory(64).slice();
  CHECK_THROWS_AS(link.b->post_recv(stale), error);
  CHECK(link.outcome(link.b->recv(stale)).has_failure());
  CHECK(all_of(of(link, request_kind::receive)) == five{0, 0, 0, 2, 0});
  link.b->post_recv(to);
  CHECK(all_of(of(link, request_kind::receive)) == five{1, 0, 0, 2, 0});
}

TEST_CASE("what waits for room is a stall", "[queue][device]") {
  loopback link{{.cq = {.mode = completion_mode::manual}}};
  const auto narrow = [&](std::uint32_t slots) {
    // The device may have given more room than was asked for.
    link.a->sends().reserve(link.a->sends().depth() - slots);
  };
  narrow(2);
  const local_mr from = link.pattern(64);
  local_mr to = link.memory(64);
  const auto one = [&] { return link.a->post(write(from, to.remote_slice())); };
  auto first = one();
  auto second = one();
  CHECK(link.driver.requests().stalls == 0);
  auto third = one();
  CHECK(link.driver.requests().stalls == 1);
  CHECK(of(link, request_kind::write).posted == 2);
  const time_point deadline = link.executor.now() + 20s;
  while (!third.has_ended()) {
    link.driver.reap();
    REQUIRE(link.executor.now() < deadline);
  }
  CHECK(link.driver.requests().stalls == 1);
  CHECK(all_of(of(link, request_kind::write)) == five{3, 3, 0, 0, 0});
}

TEST_CASE("what waits for room when it is stopped, or its queue pair goes, was never posted",
          "[queue][device]") {
  loopback link{{.cq = {.mode = completion_mode::manual}}};
  link.a->sends().reserve(link.a->sends().depth() - 1);
  const local_mr from = link.pattern(64);
  local_mr to = link.memory(64);
  const auto first = link.a->post(write(from, to.remote_slice()));
  CHECK(link.outcome(with_timeout(link.a->write(from, to.remote_slice()), 1ms)).has_failure());
  CHECK(all_of(of(link, request_kind::write)) == five{1, 0, 0, 0, 1});
  const auto second = link.a->post(write(from, to.remote_slice()));
  CHECK(all_of(of(link, request_kind::write)) == five{1, 0, 0, 0, 1});
  link.a.reset();
  CHECK(all_of(of(link, request_kind::write)) == five{1, 0, 1, 1, 1});
  CHECK(link.driver.requests().stalls == 2);
  CHECK(first.failed());
  CHECK(second.failed());
}

TEST_CASE("what a queue pair takes along has failed, and its counts survive it",
          "[queue][device]") {
  loopback link{{.cq = {.mode = completion_mode::manual}}};
  local_mr to = link.memory(64);
  for (int n = 0; n < 3; ++n) link.b->post_recv(to);
  auto lost = link.b->post(write(to.slice(), to.remote_slice()));
  CHECK(of(link, request_kind::receive).in_flight() == 3);
  link.b.reset();
  CHECK(all_of(of(link, request_kind::receive)) == five{3, 0, 3, 0, 0});
  CHECK(all_of(of(link, request_kind::write)) == five{1, 0, 1, 0, 0});
  CHECK(lost.failed());
}

TEST_CASE("a batch is counted request by request", "[queue][device]") {
  loopback link;
  const local_mr from = link.pattern(64);
  local_mr to = link.memory(64);
  auto batch = link.a->post_all(write(from, to.remote_slice()), read(to.slice(), to.remote_slice()),
                                fetch_add(to.remote_slice().slice(0, 8), 1));
  static_cast<void>(link.run(batch));
  CHECK(all_of(of(link, request_kind::write)) == five{1, 1, 0, 0, 0});
  CHECK(all_of(of(link, request_kind::read)) == five{1, 1, 0, 0, 0});
  CHECK(all_of(of(link, request_kind::atomic)) == five{1, 1, 0, 0, 0});
}

TEST_CASE("a peer without a receive is counted when it is given up", "[queue][device]") {
  loopback link{{.connected = false}};
  test::connect(link.ctx, link.port, link.a->verbs(), link.b->verbs().num(), 1, 0);
  test::connect(link.ctx, link.port, link.b->verbs(), link.a->verbs().num(), 1, 0);
  const local_mr from = link.pattern(64);
  const auto outcome = link.outcome(link.a->send(from));
  CHECK(outcome.failure().code == make_error_code(wc_errc::rnr_retry_exceeded));
  CHECK(link.driver.requests().rnr_exceeded == 1);
  CHECK(all_of(of(link, request_kind::send)) == five{1, 0, 1, 0, 0});
}

TEST_CASE("completion counters are those of what was done", "[queue][device]") {
  loopback link{{.cq = {.mode = completion_mode::manual}}};
  const local_mr from = link.pattern(64);
  local_mr to = link.memory(64);
  CHECK(link.driver.counters().polls == 0);
  link.driver.reap();
  CHECK(link.driver.counters().polls == 1);
  CHECK(link.driver.counters().empty_polls == 1);
  auto one = link.a->post(write(from, to.remote_slice()));
  const time_point deadline = link.executor.now() + 20s;
  while (link.driver.reap() == 0) REQUIRE(link.executor.now() < deadline);
  const completion_counters now = link.driver.counters();
  CHECK(now.completions == 1);
  CHECK(now.empty_polls + 1 == now.polls);
  CHECK(now.arms == 0);
  CHECK(now.completions_per_poll() == 1.);
  CHECK(completion_counters{}.completions_per_poll() == 0.);
  CHECK(one.has_ended());
}
