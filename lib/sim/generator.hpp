#pragma once

#include <cstdint>

namespace cordma::sim::detail {

/// Random numbers of one kind of decision (splitmix64). Fewer decisions of one kind leave the
/// others as they are.
class generator {
 public:
  generator(std::uint64_t seed, std::uint64_t kind) noexcept : state_{seed ^ kind << 56} {
    static_cast<void>(next());
  }
  std::uint64_t next() noexcept {
    std::uint64_t z = state_ += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }
  /// Returns a number from 0 to `last`.
  std::uint64_t up_to(std::uint64_t last) noexcept {
    return last == UINT64_MAX ? next() : next() % (last + 1);
  }
  bool happens(double chance) noexcept {
    constexpr double all = 18446744073709551616.0;
    return chance > 0 && double(next()) < chance * all;
  }

 private:
  std::uint64_t state_;
};

}  // namespace cordma::sim::detail
