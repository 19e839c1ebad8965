// Connections of a group have the options of `group_options::connections`.
#include "group/group_context.hpp"

#include "agent/agent.hpp"
#include "ranks.hpp"
#include "reserved_port.hpp"
#include "support/outcome.hpp"
#include "support/until.hpp"

#include <array>
#include <chrono>
#include <optional>
#include <string>
#include <vector>

using namespace cordma;
using namespace std::chrono_literals;
using test::code_of;
using test::ranks;

namespace {

ibv_qp_attr queried(verbs::queue_pair& qp) {
  ibv_qp_attr attributes{};
  ibv_qp_init_attr initial{};
  REQUIRE(ibv_query_qp(qp.native_handle(), &attributes,
                       IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT,
                       &initial) == 0);
  return attributes;
}

/// Returns the connection of one rank to another.
connection& connection_of(group& g, unsigned to) {
  return detail::group_context::of(g)->whole().peer(to).conn;
}

}  // namespace

TEST_CASE("the queue pairs between ranks have the fabric's options and the timeout of the group",
          "[group][device]") {
  const connection_changes wanted{
      .fabric = {.mtu = IBV_MTU_512, .traffic_class = 104}, .timeout = 11, .retry_cnt = 3};
  ranks all{3, {.connections = wanted, .connect_at_once = true}};
  for (unsigned r = 0; r < 3; ++r) {
    for (unsigned to = 0; to < 3; ++to) {
      if (to == r) continue;
      const ibv_qp_attr is = queried(connection_of(all[r], to).verbs());
      CHECK(is.path_mtu == wanted.fabric.mtu);
      CHECK(is.timeout == wanted.timeout);
      CHECK(is.retry_cnt == wanted.retry_cnt);
      if (is.ah_attr.is_global != 0)
        CHECK(is.ah_attr.grh.traffic_class == wanted.fabric.traffic_class);
    }
  }
}

TEST_CASE(
    "ranks whose options of the fabric contradict each other do not connect, and one says why",
    "[group][device]") {
  runtime rt{test::on_test_device()};
  const std::vector<meeting> meetings = meeting::in_process(2);
  std::array<group, 2> groups;
  std::array<result<void>, 2> outcomes;
  const auto live = [&](unsigned rank) -> task<> {
    group_options options;
    options.connections.fabric.mtu = rank == 0 ? IBV_MTU_512 : IBV_MTU_256;
    groups[rank] = co_await group::join(rt, meetings[rank], options);
    outcomes[rank] = co_await as_result(groups[rank].barrier());
  };
  rt.run(with_scope([&](scope& running) -> task<> {
    for (const unsigned rank : {0u, 1u}) running.spawn(live(rank));
    co_return;
  }));
  std::string said;
  for (const result<void>& one : outcomes) {
    REQUIRE(code_of(one) == errc::rank_failed);
    said += one.failure().to_string();
  }
  CHECK_THAT(said, Catch::Contains("MTU 512 here, 256 there") ||
                       Catch::Contains("MTU 256 here, 512 there"));
}

TEST_CASE("a rank that answers no handshake is waited for as long as the connections' options say",
          "[group][device]") {
  const std::array<test::reserved_port, 2> ports;
  // The kernel accepts, and nobody answers.
  ports[1].listen();
  const std::vector<endpoint> both{ports[0].address(), ports[1].address()};
  const group_options patient{.connections = {.connect_timeout = 17s}};
  manual_clock clock;
  runtime rt{test::on_test_device(test::by_hand(clock))};
  std::optional<result<void>> outcome;
  rt.run(with_scope([&](scope& running) -> task<> {
    running.spawn([&]() -> task<> {
      group g = co_await group::join(rt, meeting::by_list(both, 0), patient);
      local_mr memory = rt.memory().allocate_zeroed(8);
      outcome = co_await as_result(g.broadcast(memory.slice(), 0));
    });
    // The rank connects before time passes.
    for (int n = 0; n < 3; ++n) co_await test::due_timers_fired();
    clock.advance(17s - 1ms);
    co_await test::due_timers_fired();
    CHECK_FALSE(outcome);
    clock.advance(1ms);
    co_await test::until(rt.executor(), [&] { return outcome.has_value(); });
  }));
  REQUIRE(code_of(*outcome) == errc::rank_failed);
  CHECK_THAT(outcome->failure().to_string(), Catch::Contains("it took longer than 17000 ms"));
}
