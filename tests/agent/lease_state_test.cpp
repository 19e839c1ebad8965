#include "../../lib/agent/lease_state.hpp"

#include "support/aborts.hpp"

#include <catch2/catch.hpp>

using cordma::lease_state;

namespace {

enum class lamp { off, on, broken };

constexpr bool can_move(lamp from, lamp to) noexcept { return from != lamp::broken && from != to; }

}  // namespace

TEST_CASE("a lease's state takes the edges of its table, and aborts at any other", "[agent]") {
  lease_state<lamp> state{lamp::off};
  CHECK(state == lamp::off);
  state.move_to(lamp::on);
  state.move_to(lamp::off);
  state.move_to(lamp::broken);
  CHECK(state.now() == lamp::broken);
  const support::death illegal = support::run_in_child([&] { state.move_to(lamp::on); });
  CHECK(illegal.aborted);
  CHECK(illegal.text.find("a lease takes an edge that its table does not have") !=
        std::string::npos);
}
