#pragma once

#include "script.hpp"

#include "support/hostile_peer.hpp"
#include "support/manual_executor.hpp"

#include "agent/agent.hpp"

#include <array>
#include <optional>

namespace cordma::fuzz {

/// The program of an agent under attack: what it borrows, lends, hands over and waits for. A script
/// says what it does next.
class victim_program {
 public:
  victim_program(test::agent_world& world, test::victim& v)
      : world_{world}, victim_{v}, source_{world.memory.allocate_zeroed(64)} {}

  void act(script& in);
  /// Takes what has ended.
  void collect();
  /// Gives up all that it waits for; a turn later nothing waits.
  void stop();
  /// Drops what it holds. Nothing may wait.
  void drop();
  [[nodiscard]] bool waits() const;
  /// Takes all that was handed over to it.
  void take_received();

 private:
  struct borrowing {
    std::optional<support::started<task<remote_mr>>> asked{};
    remote_mr memory{};
    std::optional<support::started<task<>>> renewal{};
  };
  struct lent {
    std::optional<support::started<task<loan>>> made{};
    cordma::loan loan{};
    std::optional<support::started<task<loan_end>>> end{};
  };

  void ask(borrowing& b, script& in);
  void use(borrowing& b);
  void lend(lent& l, script& in);

  test::agent_world& world_;
  test::victim& victim_;
  std::array<borrowing, 4> borrowings_;
  std::array<lent, 4> lents_;
  std::optional<support::started<task<>>> handing_;
  std::optional<support::started<task<local_mr>>> received_;
  local_mr source_;
};

}  // namespace cordma::fuzz
