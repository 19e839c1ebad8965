#pragma once

#include <cordma/base/error.hpp>

#include <cstdint>

namespace cordma {

/// Facts about the system that explain why a ring could not be made.
struct uring_surroundings {
  int disabled = -1;                ///< kernel.io_uring_disabled; -1: the setting does not exist.
  std::uint64_t memlock_bytes = 0;  ///< RLIMIT_MEMLOCK's soft limit.
};

/// Reads the facts for this process.
uring_surroundings read_surroundings();

/// Returns the memory of a ring: its requests, and two completions and an index for each.
[[nodiscard]] std::uint64_t ring_bytes(unsigned entries) noexcept;

/// Returns why `io_uring_setup` of that many entries failed with `errno_value`, and the way out.
failure diagnose_uring(int errno_value, const uring_surroundings& here, unsigned entries) noexcept;

}  // namespace cordma
