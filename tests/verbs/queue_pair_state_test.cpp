#include "verbs/queue_pair_state.hpp"

#include <cordma/base/error.hpp>

#include <catch2/catch.hpp>

#include <cstddef>

using namespace cordma::verbs;
using Catch::Matchers::Contains;

TEST_CASE("the queue-pair state machine has exactly these transitions", "[verbs][N8]") {
  using enum queue_pair_state;
  constexpr queue_pair_state states[] = {reset, init, rtr, rts, sqd, sqe, error};
  constexpr bool legal[7][7] = {
      // to: reset init  rtr   rts    sqd    sqe    error
      {true, true, false, false, false, false, false},  // from reset
      {true, true, true, false, false, false, true},    // from init
      {true, false, false, true, false, false, true},   // from rtr
      {true, false, false, false, false, false, true},  // from rts
      {true, false, false, false, false, false, true},  // from sqd
      {true, false, false, false, false, false, true},  // from sqe
      {true, false, false, false, false, false, true},  // from error
  };
  for (std::size_t from = 0; from < 7; ++from) {
    for (std::size_t to = 0; to < 7; ++to) {
      INFO(to_string(states[from]) << " to " << to_string(states[to]));
      CHECK(is_legal_transition(states[from], states[to]) == legal[from][to]);
    }
  }
}

TEST_CASE("an illegal transition names both states and those allowed", "[verbs][N8]") {
  try {
    check_transition(queue_pair_state::init, queue_pair_state::rts);
    FAIL("accepted");
  } catch (const cordma::error& e) {
    CHECK(e.failure().code == cordma::errc::illegal_transition);
    CHECK_THAT(e.what(),
               Contains("INIT to RTS") && Contains("it goes to: RESET, INIT, RTR, ERROR"));
  }
}
