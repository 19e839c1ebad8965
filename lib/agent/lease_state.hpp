#pragma once

#include <cordma/detail/base/assert.hpp>

namespace cordma {

/// The state of one lease at one end. Its enumeration says which states there are, and
/// `can_move(from, to)`, beside that, which edges. \thread the executor's.
template <class State>
class lease_state {
 public:
  constexpr explicit lease_state(State first) noexcept : now_{first} {}

  /// Aborts unless the table has this edge.
  void move_to(State next) noexcept {
    CORDMA_ASSERT(can_move(now_, next), "a lease takes an edge that its table does not have");
    now_ = next;
  }
  [[nodiscard]] constexpr State now() const noexcept { return now_; }
  [[nodiscard]] constexpr bool operator==(State other) const noexcept { return now_ == other; }

 private:
  State now_;
};

}  // namespace cordma
