// A borrower between two steps of what it does, on a clock and turns of the test's own.
#include "../../lib/agent/borrower.hpp"

#include "queue/send_queue.hpp"
#include "support/held.hpp"
#include "support/hostile_peer.hpp"
#include "support/manual_executor.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <chrono>
#include <list>
#include <optional>
#include <stdexcept>
#include <utility>

using namespace cordma;
using namespace std::chrono_literals;
using agent_protocol::frame;
using agent_protocol::kind;
using support::started;
using test::held_by;
using test::nothing;

namespace {

/// A borrower with a lease of 64 bytes, which it has written to.
struct with_a_lease {
  with_a_lease() {
    started<task<remote_mr>> asked{world.executor, v.self().borrows.request(64, {})};
    const frame question = heard(kind::request);
    peer.say({.kind = kind::granted,
              .tag = question.tag,
              .lease = 7,
              .length = 64,
              .address = peer.address(),
              .rkey = peer.rkey(),
              .access = lending_policy::lendable_access,
              .duration = 1s,
              .isolation = std::uint8_t(isolation::exact)});
    wait_for([&] { return asked.has_ended(); });
    memory = asked->take_result().value();
    started written{world.executor, cordma::as_result(v.data().write(source.slice(), memory))};
    wait_for([&] { return written.has_ended(); });
  }
  ~with_a_lease() {
    memory = {};
    v.cut_off(errc::closed);
    wait_for([&] { return v.self().context.counters.borrowed == 0; });
  }
  void wait_for(auto done) {
    const auto deadline = std::chrono::steady_clock::now() + 5s;
    while (!done()) {
      world.iterate();
      peer.listen();
      if (std::chrono::steady_clock::now() > deadline) throw std::runtime_error{"never came"};
    }
  }
  frame heard(kind k) {
    const auto is = [k](const frame& f) { return f.kind == k; };
    wait_for([&] { return std::ranges::any_of(peer.heard, is); });
    return *std::ranges::find_if(peer.heard, is);
  }
  [[nodiscard]] std::uint64_t requests_sent() const {
    return world.driver.requests().of(request_kind::agent_send).posted;
  }

  test::agent_world world;
  test::victim v{world, {}};
  test::hostile_peer peer{world, v};
  local_mr source = world.memory.allocate_zeroed(64);
  remote_mr memory;
};

}  // namespace

TEST_CASE("memory whose hand-over is destroyed at any step before the question goes back",
          "[agent][device][R3]") {
  for (const bool is_flushed : {false, true}) {
    INFO(is_flushed);
    with_a_lease b;
    std::optional<started<task<>>> handing;
    handing.emplace(b.world.executor, b.v.self().borrows.hand_over(std::move(b.memory)));
    // The READ has ended, and nobody has resumed the task yet.
    while (is_flushed && b.v.data().sends().in_flight() > 0) b.world.driver.reap();
    REQUIRE_FALSE(handing->has_ended());
    handing.reset();
    CHECK(b.heard(kind::give_back).lease == 7);
    CHECK(held_by(b.v.self()) == nothing);
  }
}

TEST_CASE("memory whose hand-over is destroyed before its question finds credit goes back",
          "[agent][device][R3]") {
  with_a_lease b;
  std::list<started<task<remote_mr>>> unanswered;
  for (std::uint32_t n = 0; n < agent_protocol::questions_max; ++n)
    unanswered.emplace_back(b.world.executor, b.v.self().borrows.request(64, {}));
  std::optional<started<task<>>> handing;
  handing.emplace(b.world.executor, b.v.self().borrows.hand_over(std::move(b.memory)));
  b.wait_for([&] { return b.v.data().sends().in_flight() == 0; });
  for (int n = 0; n < 3; ++n) b.world.iterate();
  REQUIRE_FALSE(handing->has_ended());
  handing.reset();
  CHECK(b.heard(kind::give_back).lease == 7);
  CHECK(std::ranges::count(b.peer.heard, kind::hand_over, &frame::kind) == 0);
}

TEST_CASE("memory on its way back ends with the connection, whoever waits for it",
          "[agent][device][R6]") {
  enum class step { dropped, handed_over, flushed };
  for (const step at : {step::dropped, step::handed_over, step::flushed}) {
    INFO(int(at));
    with_a_lease b;
    std::optional<started<task<>>> handing;
    if (at == step::dropped)
      b.memory = {};
    else
      handing.emplace(b.world.executor, b.v.self().borrows.hand_over(std::move(b.memory)));
    while (at == step::flushed && b.v.data().sends().in_flight() > 0) b.world.driver.reap();
    b.v.cut_off(errc::device_failed);
    b.wait_for([&] { return !handing || handing->has_ended(); });
    if (handing) CHECK((**handing).failed());
    CHECK(held_by(b.v.self()) == nothing);
  }
}

TEST_CASE("the owner hears of no memory whose flush has failed", "[agent][device][R3][R6]") {
  for (const bool is_dropped : {false, true}) {
    INFO(is_dropped);
    with_a_lease b;
    // The flush waits for room, so that it ends before anybody hears of the queue pair's failure.
    const auto write = [&]() -> task<> {
      static_cast<void>(co_await as_result(b.v.data().write(b.source.slice(), b.memory)));
    };
    std::list<started<task<>>> writing;
    while (b.v.data().sends().has_room()) writing.emplace_back(b.world.executor, write());
    std::optional<started<task<>>> handing;
    if (is_dropped)
      b.memory = {};
    else
      handing.emplace(b.world.executor, b.v.self().borrows.hand_over(std::move(b.memory)));
    const std::uint64_t told = b.requests_sent();
    b.v.data().abort({.code = errc::limit_exceeded, .call = "test"});
    b.wait_for([&] { return b.v.control().slots_in_use() == 0; });
    CHECK(b.requests_sent() == told + 1);  // One drains the control queue pair, and is no frame.
    b.wait_for([&] { return !handing || handing->has_ended(); });
    if (handing) CHECK((**handing).failed());
    CHECK(held_by(b.v.self()) == nothing);
    for (const auto& one : writing) CHECK(one.has_ended());
  }
}
