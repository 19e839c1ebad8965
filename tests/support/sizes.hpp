#pragma once

#include <cstddef>

namespace cordma::test {

inline constexpr std::size_t mib = std::size_t{1} << 20;

}  // namespace cordma::test
