#include "cancellation.hpp"
#include "../multicast/groups.hpp"
#include "pair.hpp"

#include <pthread.h>

// Requests make system calls: doorbells, sockets, events. pthread_cancel(3) ends no thread
// there, where it holds locks.

using namespace softverbs;
using namespace softverbs::test;

TEST_CASE("a thread that is cancelled sends, receives and arms to the end", "[qp]") {
  pair both{{.channel = true}};
  CHECK(runs_while_cancelled([&] {
    REQUIRE(both.b.receive(1, {both.b.piece(0, 8)}) == 0);
    REQUIRE(verb::req_notify_cq(both.b.cq, 0) == 0);
    both.a.fill(0, 8, 3);
    REQUIRE(both.a.send(request(IBV_WR_SEND), {both.a.piece(0, 8)}) == 0);
    CHECK(both.a.await().status == IBV_WC_SUCCESS);
    CHECK(both.b.await().status == IBV_WC_SUCCESS);
  }));
  CHECK(both.a.memory[7] == both.b.memory[7]);
  // The event is dropped with its queue.
  CHECK(runs_while_cancelled([&] { both.b.destroy_qp(); }));
}

TEST_CASE("a thread that is cancelled sends to a group", "[qp]") {
  const pair_options how{.type = IBV_QPT_UD};
  pair both{how};
  const ibv_gid to = test::group(1);
  REQUIRE(verb::attach_mcast(both.b.qp, &to, 0) == 0);
  ibv_ah_attr attr = side::path();
  attr.grh.dgid = to;
  ibv_ah* const ah = verb::create_ah(both.a.pd, &attr);
  REQUIRE(ah != nullptr);
  REQUIRE(both.b.receive(1, {both.b.piece(0, 48)}) == 0);
  CHECK(runs_while_cancelled([&] {
    ibv_send_wr wr = request(IBV_WR_SEND);
    wr.wr.ud = {ah, 0xffffff, how.qkey};
    REQUIRE(both.a.send(wr, {both.a.piece(0, 8)}) == 0);
    CHECK(both.a.await().status == IBV_WC_SUCCESS);
    CHECK(both.b.await().status == IBV_WC_SUCCESS);
  }));
  CHECK(verb::destroy_ah(ah) == 0);
  CHECK(verb::detach_mcast(both.b.qp, &to, 0) == 0);
}

TEST_CASE("a thread that waits for an event can be cancelled, and the next event comes", "[qp]") {
  pair both{{.channel = true}};
  pthread_t waiter{};
  const auto wait = [](void* channel) -> void* {
    ibv_cq* cq = nullptr;
    void* context = nullptr;
    verb::get_cq_event(static_cast<ibv_comp_channel*>(channel), &cq, &context);
    return nullptr;
  };
  REQUIRE(::pthread_create(&waiter, nullptr, wait, both.b.channel) == 0);
  REQUIRE(::pthread_cancel(waiter) == 0);
  void* result = nullptr;
  REQUIRE(::pthread_join(waiter, &result) == 0);
  CHECK(result == PTHREAD_CANCELED);
  REQUIRE(both.b.receive(1, {both.b.piece(0, 8)}) == 0);
  REQUIRE(verb::req_notify_cq(both.b.cq, 0) == 0);
  REQUIRE(both.a.send(request(IBV_WR_SEND), {both.a.piece(0, 8)}) == 0);
  ibv_cq* cq = nullptr;
  void* context = nullptr;
  REQUIRE(verb::get_cq_event(both.b.channel, &cq, &context) == 0);
  CHECK(cq == both.b.cq);
  cq->comp_events_completed = 1;
}
