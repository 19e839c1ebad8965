#pragma once

#include "base/random.hpp"

#include <cstdint>

namespace cordma::test {

/// Gives the bytes 1, 2, 3 and so on, or those after another one.
class counted_bytes final : public detail::random_source {
 public:
  explicit counted_bytes(std::uint8_t last = 0) noexcept : last_{last} {}
  void fill(std::span<std::byte> out) override {
    for (std::byte& one : out) one = std::byte{++last_};
  }

 private:
  std::uint8_t last_;
};

}  // namespace cordma::test
