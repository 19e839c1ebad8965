#pragma once

#include "plan.hpp"

#include <cstdint>
#include <vector>

namespace cordma::sim::detail {

/// Random numbers of a seed (splitmix64).
class generator {
 public:
  generator(std::uint64_t seed, std::uint64_t kind) noexcept : state_{seed ^ kind << 56} {
    static_cast<void>(next());
  }
  std::uint64_t next() noexcept { return mixed(state_ += 0x9e3779b97f4a7c15); }
  /// Returns a number from 0 to `last`.
  std::uint64_t up_to(std::uint64_t last) noexcept {
    return last == UINT64_MAX ? next() : next() % (last + 1);
  }
  static std::uint64_t mixed(std::uint64_t z) noexcept {
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }

 private:
  std::uint64_t state_;
};

/// Decisions of one kind. Each takes one number of the seed, also when the plan takes the decision
/// back: the others stay as they are.
class decisions {
 public:
  decisions(std::uint64_t seed, decision_kind kind, const plan& p)
      : numbers_{seed, std::uint64_t(kind) + 1}, kept_{p.of(kind)} {}

  /// Returns a number from 0 to `last`; 0 if the plan takes the decision back.
  std::uint64_t up_to(std::uint64_t last) noexcept {
    const std::uint64_t number = numbers_.up_to(last);
    return kept_.contains(made_++) ? number : 0;
  }
  /// Returns 0 unless something of this chance happens; then how much of it, from 1 to `last`.
  std::uint64_t amount(double chance, std::uint64_t last = 1) {
    constexpr double all = 18446744073709551616.0;
    if (chance <= 0) return 0;
    const std::uint64_t number = numbers_.next();
    const std::uint64_t index = made_++;
    if (double(number) >= chance * all || !kept_.contains(index)) return 0;
    happened_.push_back(index);
    return 1 + (last <= 1 ? 0 : generator::mixed(number) % last);
  }
  bool happens(double chance) { return amount(chance) != 0; }

  /// Returns how many decisions there were.
  [[nodiscard]] std::uint64_t made() const noexcept { return made_; }
  /// Returns which decisions made something happen.
  [[nodiscard]] const std::vector<std::uint64_t>& happened() const noexcept { return happened_; }

 private:
  generator numbers_;
  const decision_set kept_;
  std::uint64_t made_ = 0;
  std::vector<std::uint64_t> happened_;
};

}  // namespace cordma::sim::detail
