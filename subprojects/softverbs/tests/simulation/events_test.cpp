#include "simulation/world.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

// Asynchronous events that the traffic of a simulated host raises.

using namespace softverbs;
using namespace softverbs::test;

namespace {

using event_types = std::vector<ibv_event_type>;

/// The events of one host's device so far.
event_types events_of(far_pair& both, unsigned number) {
  const on_host here{both.host(number)};
  return number == 1 ? both.a().events() : both.b().events();
}

void post_receives(far_pair& both, std::uint64_t count) {
  const on_host here{both.host(2)};
  for (std::uint64_t id = 0; id < count; ++id)
    REQUIRE(both.b().receive(id, {both.b().piece(0, 64)}) == 0);
}

/// How often the world was told that a host's events are readable.
std::ptrdiff_t told_events(const far_pair& both, unsigned number) {
  ibv_context* ctx = nullptr;
  REQUIRE(softverbs_host_contexts(both.host(number), &ctx, 1) == 1);
  return std::ranges::count(both.world.told_readable, std::pair{both.host(number), ctx->async_fd});
}

}  // namespace

TEST_CASE("a completion queue of a simulation that overruns tells its host, and no other",
          "[simulation]") {
  far_pair both{{.cqe = 2}};
  const int capacity = both.b().cq->cqe;
  post_receives(both, std::uint64_t(capacity) + 1);
  for (int n = 0; n < capacity; ++n) both.send(request(IBV_WR_SEND), {both.a().piece(0, 8)});
  both.world.run();
  CHECK(told_events(both, 2) == 0);
  for (int n = 0; n < capacity; ++n) CHECK(both.completion(1).status == IBV_WC_SUCCESS);
  both.send(request(IBV_WR_SEND), {both.a().piece(0, 8)});
  both.world.run();
  CHECK(told_events(both, 2) == 2);
  CHECK(events_of(both, 2) == event_types{IBV_EVENT_CQ_ERR, IBV_EVENT_QP_FATAL});
  CHECK(events_of(both, 1).empty());
}

TEST_CASE("a completion queue of a simulation overruns by its host's own requests",
          "[simulation]") {
  far_pair both{{.cqe = 2}};
  for (int n = 0; n <= both.a().cq->cqe; ++n)
    both.send(one_sided(IBV_WR_RDMA_WRITE, both.b()), {both.a().piece(0, 8)});
  both.world.run();
  CHECK(told_events(both, 1) == 2);
  CHECK(events_of(both, 1) == event_types{IBV_EVENT_CQ_ERR, IBV_EVENT_QP_FATAL});
  CHECK(events_of(both, 2).empty());
}

TEST_CASE("a shared receive queue of a simulation tells once that it is below its limit",
          "[simulation]") {
  far_pair both{{.srq = true}};
  post_receives(both, 3);
  {
    const on_host here{both.host(2)};
    ibv_srq_attr attr{};
    attr.srq_limit = 2;
    REQUIRE(verb::modify_srq(both.b().srq, &attr, IBV_SRQ_LIMIT) == 0);
  }
  for (const unsigned id : {0u, 1u, 2u}) {
    both.send(request(IBV_WR_SEND), {both.a().piece(0, 8)});
    CHECK(both.completion(2).wr_id == id);
    CHECK(told_events(both, 2) == (id == 0 ? 0 : 1));
    if (id == 1) CHECK(events_of(both, 2) == event_types{IBV_EVENT_SRQ_LIMIT_REACHED});
  }
  CHECK(events_of(both, 1).empty());
}

TEST_CASE("a completion raises no event if its queue is armed later, where a world says so",
          "[simulation]") {
  const bool arms_for_later = GENERATE(false, true);
  far_pair both{{.channel = true}, 0, arms_for_later};
  const auto told = [&] {
    return std::ranges::count(both.world.told_readable,
                              std::pair{both.host(1), both.a().channel->fd});
  };
  const auto write = [&] {
    both.send(one_sided(IBV_WR_RDMA_WRITE, both.b()), {both.a().piece(0, 8)});
    both.world.run();
  };
  write();
  {
    const on_host here{both.host(1)};
    REQUIRE(verb::req_notify_cq(both.a().cq, 0) == 0);
  }
  CHECK(told() == (arms_for_later ? 0 : 1));
  write();
  CHECK(told() == 1);
}
