#pragma once

#include <bit>

namespace cordma::detail {

/// Ranks as a power of two, for reductions. Of each of the first pairs of ranks, one folds its
/// operand into the other's; the rest are numbered in the order of ranks. The root is never folded.
class folded_ranks {
 public:
  explicit folded_ranks(unsigned size, unsigned root = 0) noexcept
      : count_{std::bit_floor(size)}, pairs_{size - count_}, root_{root} {}

  [[nodiscard]] unsigned count() const noexcept { return count_; }
  [[nodiscard]] bool is_paired(unsigned rank) const noexcept { return rank < 2 * pairs_; }
  [[nodiscard]] bool is_folded(unsigned rank) const noexcept {
    return is_paired(rank) && rank_of(rank / 2) != rank;
  }
  [[nodiscard]] static unsigned partner_of(unsigned rank) noexcept { return rank ^ 1; }
  [[nodiscard]] unsigned number_of(unsigned rank) const noexcept {
    return is_paired(rank) ? rank / 2 : rank - pairs_;
  }
  /// Returns the rank that has a number.
  [[nodiscard]] unsigned rank_of(unsigned number) const noexcept {
    if (number >= pairs_) return number + pairs_;
    return 2 * number + (root_ == 2 * number + 1);
  }
  /// Returns the lowest rank that has a number, or folds into it. `count()` gives the size.
  [[nodiscard]] unsigned lowest_of(unsigned number) const noexcept {
    return number < pairs_ ? 2 * number : number + pairs_;
  }

 private:
  unsigned count_;
  unsigned pairs_;
  unsigned root_;
};

}  // namespace cordma::detail
