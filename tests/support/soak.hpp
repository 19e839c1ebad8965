#pragma once

#include <cstdint>

/// For long campaigns: a test case tagged `[.soak-NAME]` (hidden from an ordinary run) that repeats
/// `count(full)` times from `seed()`. `./dev soak NAME` runs it; docs/testing.md says how.
namespace cordma::test::soak {

/// CORDMA_SOAK_COUNT if set, else `full` / CORDMA_SOAK_DIVISOR (1 if not set); at least 1.
std::uint64_t count(std::uint64_t full);

/// CORDMA_SEED if set, else a random one. Printed, so that a failure can be run again.
std::uint64_t seed();

}  // namespace cordma::test::soak
