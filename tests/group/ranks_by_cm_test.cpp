// Ranks that listen, and connect to each other, by rdma_cm.
#include "group/group_context.hpp"

#include "connection/cm_peers.hpp"
#include "group/ranks.hpp"
#include "support/outcome.hpp"

#include <cordma/coro/when_all.hpp>

#include <catch2/catch.hpp>

#include <string>
#include <vector>

using namespace cordma;
using test::expect;

namespace {

constexpr unsigned size = 3;

/// Strangers reach the address of a device that is not soft0.
group_options by_cm(const test::cm_runtime& r) {
  return {.connections = {.insecure = true}, .listen = r.here().to_string()};
}

/// Has each rank do its part, and returns what became of it.
template <class Body>
std::vector<result<void>> outcomes_of(test::cm_runtime& r, Body body) {
  const std::vector<meeting> meetings = meeting::in_process(size);
  std::vector<result<void>> all(size, cancelled_result);
  const auto live = [&](unsigned rank) -> task<> {
    group g = co_await group::join(r.rt, meetings[rank], by_cm(r));
    all[rank] = co_await as_result(body(g));
  };
  r.rt.run(with_scope([&](scope& running) -> task<> {
    for (unsigned rank = 0; rank < size; ++rank) running.spawn(live(rank));
    co_return;
  }));
  return all;
}

}  // namespace

TEST_CASE("ranks of a group that listen by rdma_cm connect by it, and work together",
          "[group][device][rdma_cm]") {
  test::cm_runtime r;
  const auto outcomes = outcomes_of(r, [](group& g) -> task<> {
    for (const detail::group_member& one : detail::group_context::of(g)->whole().met().members)
      expect(one.endpoint.starts_with("rdma_cm:"), one.endpoint);
    local_mr memory = g.runtime().memory().allocate_zeroed(100'000);
    for (const std::size_t bytes : {std::size_t{8}, memory.size_bytes()}) {
      std::ranges::fill(memory.bytes(), std::byte(g.rank()));
      co_await g.broadcast(memory.first(bytes), 2);
      expect(memory.bytes()[bytes - 1] == std::byte{2}, "the root's bytes");
    }
    std::vector<unsigned> sum{g.rank() + 1};
    co_await g.all_reduce(std::span{sum}, reduction::sum);
    expect(sum[0] == 6, "the sum");
    expect(g.counters().connections == size - 1, "the connections");
    co_await std::exchange(g, group{}).leave();
  });
  for (const result<void>& one : outcomes) {
    INFO((one.has_failure() ? one.failure().to_string() : ""));
    CHECK(one.has_value());
  }
}

TEST_CASE("a rank of a group by rdma_cm that leaves ends what waits for it, by name",
          "[group][device][rdma_cm]") {
  test::cm_runtime r;
  const auto outcomes = outcomes_of(r, [](group& g) -> task<> {
    co_await g.barrier();
    if (g.rank() == 1) co_return co_await std::exchange(g, group{}).leave();
    co_await g.barrier();
  });
  CHECK(outcomes[1].has_value());
  for (const unsigned rank : {0u, 2u}) {
    REQUIRE(test::code_of(outcomes[rank]) == errc::rank_failed);
    CHECK(outcomes[rank].failure().object.number == 1);
  }
}
