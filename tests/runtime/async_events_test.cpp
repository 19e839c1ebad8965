#include "runtime/async_events.hpp"

#include "support/connected_pair.hpp"
#include "support/held.hpp"
#include "support/loopback.hpp"
#include "verbs/device.hpp"

#include <cordma/coro/with_timeout.hpp>
#include <cordma/runtime/runtime.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <memory>
#include <optional>
#include <vector>

using namespace cordma;
using namespace std::chrono_literals;
using test::held_by;
using test::loopback;
using test::nothing;

namespace {

/// Overruns a completion queue by one CQE, from a queue pair that cordma does not know.
class overrunner {
 public:
  overrunner(loopback& link, verbs::completion_queue& cq)
      : overrunner{link.ctx, link.pd, link.port, cq} {}
  overrunner(verbs::context& ctx, verbs::protection_domain& pd, const verbs::port_info& port,
             verbs::completion_queue& cq)
      : count_{cq.capacity() + 1}, qp_{pd, cq, cq, {.send_wr_max = count_}} {
    test::connect(ctx, port, qp_, qp_.num());
    for (unsigned i = 0; i < count_; ++i) {
      ibv_send_wr wr{};
      wr.wr_id = std::uint64_t(-1);
      wr.opcode = IBV_WR_RDMA_WRITE;
      wr.send_flags = IBV_SEND_SIGNALED;
      ibv_send_wr* bad = nullptr;
      REQUIRE(qp_.post_send(&wr, &bad) == 0);
    }
  }

 private:
  unsigned count_;
  verbs::queue_pair qp_;
};

}  // namespace

TEST_CASE("an overrun completion queue ends every slot of every queue pair on it",
          "[runtime][device][E4]") {
  const verbs::queue_pair_capabilities small{.send_wr_max = 8, .recv_wr_max = 8};
  // Manual: nobody takes the entries.
  loopback link{{.cq = {.depth = 128, .mode = completion_mode::manual}, .capabilities = small}};
  auto other = link.make_queue_pair(small);
  auto other_peer = link.make_queue_pair(small);
  link.connect(*other, *other_peer);
  completion_queue_driver unharmed{link.executor, link.ctx};
  link.events.add(unharmed);
  const auto make_unharmed = [&] {
    return std::make_unique<queue_pair>(unharmed, link.pd, small, link.port.message_max_bytes);
  };
  auto survivor = make_unharmed();
  auto survivor_peer = make_unharmed();
  link.connect(*survivor, *survivor_peer);
  local_mr mr = link.memory(64);

  auto handle = link.a->post(send(mr));  // The peer has no receive: the message stays in flight.
  other->post_recv(mr);
  scope waiting{link.executor};
  std::vector<std::error_code> ends;
  const auto wait_for = [](auto op, std::vector<std::error_code>& to) -> task<> {
    const auto outcome = co_await as_result(std::move(op));
    to.push_back(outcome.has_failure() ? outcome.failure().code : std::error_code{});
  };
  waiting.spawn(wait_for(other->next_message(), ends));
  for (std::uint32_t i = 0; i < other_peer->receives().depth() + 3; ++i) {
    waiting.spawn(wait_for(link.b->recv(mr), ends));  // Three wait for room.
  }
  link.run(link.executor.sleep_for(1ms));

  std::optional<overrunner> overrun{std::in_place, link, link.driver.verbs()};
  link.run(waiting.join());
  CHECK(ends.size() == 1 + other_peer->receives().depth() + 3);
  for (const std::error_code& end : ends) CHECK(end == errc::cq_overrun);
  CHECK(link.outcome(handle).failure().code == errc::cq_overrun);
  for (queue_pair* qp : {link.a.get(), link.b.get(), other.get(), other_peer.get()}) {
    CHECK(qp->failure_reason().code == errc::cq_overrun);
    CHECK(link.outcome(qp->send(mr)).failure().code == errc::disconnected);
    CHECK(qp->verbs().query_state() == verbs::queue_pair_state::error);
  }
  CHECK_FALSE(survivor->has_failed());
  CHECK(link.run(survivor->write(mr, mr.remote_slice())) == 64);

  // The program sees it, too.
  const auto kept = link.run(with_timeout(link.events.next(), 10s));
  REQUIRE(kept.has_value());
  CHECK(kept->kind == IBV_EVENT_CQ_ERR);
  CHECK(kept->cq == link.driver.verbs().native_handle());

  // Requests that the device never gives back go with the queue pairs.
  CHECK(held_by(mr) != nothing);
  for (auto* qp : {&link.a, &link.b, &other, &other_peer}) qp->reset();
  CHECK(held_by(mr) == nothing);
  link.events.remove(unharmed);
}

TEST_CASE("a runtime gives the program the device's events", "[runtime][device][E7]") {
  runtime rt{test::on_test_device()};
  verbs::completion_queue cq{rt.context(), 1};
  const overrunner one{rt.context(), rt.protection_domain(), rt.context().active_port(), cq};
  const verbs::async_event event = rt.run(with_timeout(rt.next_device_event(), 10s));
  CHECK(event.kind == IBV_EVENT_CQ_ERR);
  CHECK(event.cq == cq.native_handle());
}

TEST_CASE("many events are read at once, and those that nobody takes are counted",
          "[runtime][device][E7]") {
  static constexpr std::size_t overruns = async_events::events_kept_max + 6;
  loopback link;
  std::vector<verbs::completion_queue> queues;
  std::vector<std::unique_ptr<overrunner>> overrunners;
  for (std::size_t i = 0; i < overruns; ++i) queues.emplace_back(link.ctx, 1);
  for (verbs::completion_queue& cq : queues) {
    overrunners.push_back(std::make_unique<overrunner>(link, cq));
  }
  // The test expects at least one event of each: rxe reports each lost CQE. The specification
  // speaks of the queue, and lets the queue pair that completes there be reported, too.
  link.run_until([&] { return link.events.seen() >= overruns; });
  CHECK_FALSE(verbs::next_async_event(link.ctx).has_value());
  CHECK(link.events.dropped() == link.events.seen() - async_events::events_kept_max);
  for (std::size_t i = 0; i < async_events::events_kept_max; ++i) {
    const auto kept = link.run(with_timeout(link.events.next(), 10s));
    REQUIRE(kept.has_value());
    if (kept->kind == IBV_EVENT_QP_FATAL) continue;
    CHECK(kept->kind == IBV_EVENT_CQ_ERR);
    CHECK(std::ranges::count(queues, kept->cq, &verbs::completion_queue::native_handle) == 1);
  }
  CHECK_FALSE(link.a->has_failed());
}

TEST_CASE("an event goes to the object it names, and to no other", "[runtime][device]") {
  loopback link;
  local_mr mr = link.memory(64);
  SECTION("a queue pair") {
    const ibv_event_type kind = GENERATE(IBV_EVENT_QP_FATAL, IBV_EVENT_QP_REQ_ERR,
                                         IBV_EVENT_QP_ACCESS_ERR, IBV_EVENT_QP_LAST_WQE_REACHED);
    auto handle = link.a->post(send(mr));  // The peer has no receive.
    link.events.route({.kind = kind, .qp = link.a->verbs().native_handle()});
    CHECK(link.a->failure_reason().code == errc::disconnected);
    CHECK(link.outcome(handle).failure().code == errc::disconnected);
    CHECK(link.outcome(link.a->next_message()).failure().code == errc::disconnected);
    CHECK_FALSE(link.b->has_failed());
  }
  SECTION("a completion queue that is not ours") {
    link.events.route({.kind = IBV_EVENT_CQ_ERR});
    CHECK_FALSE(link.a->has_failed());
  }
  SECTION("a queue pair that is gone") {
    ibv_qp* const gone = link.b->verbs().native_handle();
    link.b.reset();
    link.events.route({.kind = IBV_EVENT_QP_ACCESS_ERR, .qp = gone});
    CHECK_FALSE(link.a->has_failed());
  }
  SECTION("the whole device") {
    const ibv_event_type kind = GENERATE(IBV_EVENT_DEVICE_FATAL, IBV_EVENT_PORT_ERR);
    auto handle = link.a->post(send(mr));
    link.events.route({.kind = kind, .port = link.port.number});
    CHECK(link.outcome(handle).failure().code == errc::device_failed);
    CHECK(link.outcome(link.b->next_message()).failure().code == errc::device_failed);
  }
  SECTION("what is only good to know") {
    for (const ibv_event_type kind :
         {IBV_EVENT_PORT_ACTIVE, IBV_EVENT_COMM_EST, IBV_EVENT_GID_CHANGE, IBV_EVENT_SQ_DRAINED}) {
      link.events.route({.kind = kind, .qp = link.a->verbs().native_handle()});
    }
    CHECK_FALSE(link.a->has_failed());
    CHECK(link.run(link.a->write(mr, mr.remote_slice())) == 64);
  }
  SECTION("a driver that was removed") {
    link.events.remove(link.driver);
    link.events.route({.kind = IBV_EVENT_DEVICE_FATAL});
    CHECK_FALSE(link.a->has_failed());
  }
}
