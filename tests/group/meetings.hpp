#pragma once

#include "group/meeting.hpp"
#include "support/connected_pair.hpp"

#include <cordma/coro/scope.hpp>
#include <cordma/group/joining.hpp>

#include <catch2/catch.hpp>

#include <string>
#include <vector>

// Ranks that meet, without the group behind.
namespace cordma::test {

/// Meetings only pass the endpoint on: no rank connects there.
inline detail::group_member some_member(unsigned rank, std::uint64_t host = 7) {
  return {"10.0.0.1:" + std::to_string(4000 + rank), host};
}

inline group_options patient() { return {}; }

inline task<detail::roster> meet(meeting where, runtime& rt, group_options options,
                                 detail::group_member self) {
  co_return co_await where.kind().meet(rt, options, std::move(self));
}

/// Has ranks of one runtime meet, and gives the result of each.
inline std::vector<result<detail::roster>> meet_all(runtime& rt, std::vector<meeting> ranks,
                                                    const group_options& options = {}) {
  std::vector<result<detail::roster>> all(ranks.size(), cancelled_result);
  rt.run(with_scope([&](scope& running) -> task<> {
    for (unsigned rank = 0; rank < ranks.size(); ++rank) {
      running.spawn([&, rank]() -> task<> {
        all[rank] = co_await as_result(meet(ranks[rank], rt, options, some_member(rank)));
      });
    }
    co_return;
  }));
  return all;
}

/// Checks that all ranks have learnt the same, of all.
inline void check_rosters(std::vector<result<detail::roster>> all) {
  for (unsigned rank = 0; rank < all.size(); ++rank) {
    INFO("rank " << rank << (all[rank].has_failure() ? all[rank].failure().to_string() : ""));
    REQUIRE(all[rank].has_value());
    CHECK(all[rank]->rank == rank);
    CHECK(all[rank]->name == all[0]->name);
    REQUIRE(all[rank]->members.size() == all.size());
    for (unsigned other = 0; other < all.size(); ++other) {
      CHECK(all[rank]->members[other].endpoint == some_member(other).endpoint);
      CHECK(all[rank]->members[other].host == some_member(other).host);
    }
  }
}

}  // namespace cordma::test
