#include "group/world.hpp"

#include "rank_process.hpp"
#include "ranks.hpp"
#include "reserved_port.hpp"
#include "support/device.hpp"
#include "support/skip.hpp"
#include "support/two_hosts.hpp"

#include <chrono>
#include <functional>
#include <string>
#include <vector>

using namespace cordma;
using namespace std::chrono_literals;
using test::rank_process;

namespace {

using teller = std::function<void(std::string)>;

/// docs/collectives.md promises that a host's death is noticed within 6 s. A busy machine adds
/// some.
constexpr std::chrono::seconds noticed_within{6 + 3};
constexpr std::chrono::seconds joins_within{20};
constexpr unsigned per_host = 2;

/// Waits until the group fails, and goes on with the ranks of one host until it is killed.
task<> live_on_host(runtime& rt, const endpoint& where, unsigned rank, const group_options& options,
                    const teller& say) {
  group g = co_await group::join(rt, meeting::at(where, rank, 2 * per_host), options);
  co_await g.barrier();
  say("joined");
  const auto waited = co_await as_result(g.receive({}));
  say("told " + waited.failure().to_string());
  while (g.size() > per_host || g.why_failed()) {
    group rest = co_await g.shrink();
    g = std::move(rest);
    static_cast<void>(co_await as_result(g.barrier()));
  }
  say("goes on with " + std::to_string(g.size()));
  co_await g.receive({});
}

}  // namespace

TEST_CASE("a host that dies with its ranks is noticed in time, and the others go on",
          "[group_death][device]") {
  if (!test::is_soft()) CORDMA_SKIP("two hosts are two devices, and soft0 has one on each");
  const std::string why_not = test::why_no_hosts();
  if (!why_not.empty()) CORDMA_SKIP(why_not);
  const test::two_hosts hosts;
  // A new host has each port free.
  const test::reserved_port port;
  const endpoint where{test::two_hosts::addresses[0], port.number()};
  std::vector<rank_process> all;
  for (unsigned r = 0; r < 2 * per_host; ++r)
    all.emplace_back([&, r](const teller& say) {
      const unsigned host = r / per_host;
      hosts.enter(host);
      group_options options;
      options.listen = std::string{test::two_hosts::addresses[host]} + ":0";
      options.host = host + 1;
      options.connections.insecure = true;
      options.connect_at_once = true;
      runtime rt{test::on_test_device()};
      rt.run(live_on_host(rt, where, r, options, say));
    });
  for (rank_process& one : all) REQUIRE(one.line(joins_within) == "joined");
  // The kernel tells the survivors nothing of a process that ends behind the cut.
  hosts.cut();
  for (unsigned r = per_host; r < 2 * per_host; ++r) all[r].end();
  const auto until = std::chrono::steady_clock::now() + noticed_within;
  for (unsigned r = 0; r < per_host; ++r) {
    INFO("rank " << r);
    REQUIRE_THAT(all[r].line(until - std::chrono::steady_clock::now()),
                 Catch::StartsWith("told ") && Catch::Contains("rank "));
    CHECK(all[r].line(joins_within) == "goes on with 2");
  }
}
