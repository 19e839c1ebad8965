#pragma once

#include "../../lib/agent/lease_state.hpp"

#include "aborts.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <utility>
#include <vector>

namespace cordma::test {

/// Takes each of `edges`, and checks that a lease aborts at any other between `first` and `last`.
template <class State>
void check_table(const std::vector<std::pair<State, State>>& edges, State first, State last) {
  for (int from = int(first); from <= int(last); ++from) {
    for (int to = int(first); to <= int(last); ++to) {
      INFO(from << " to " << to);
      const std::pair edge{State(from), State(to)};
      const bool is_legal = std::ranges::find(edges, edge) != edges.end();
      REQUIRE(can_move(edge.first, edge.second) == is_legal);
      lease_state<State> state{edge.first};
      if (is_legal) {
        state.move_to(edge.second);
        CHECK(state == edge.second);
      } else {
        CHECK(support::run_in_child([&] { state.move_to(edge.second); }).aborted);
      }
    }
  }
}

}  // namespace cordma::test
