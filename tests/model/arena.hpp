#pragma once

#include <cstddef>

/// The memory that a scenario allocates. Freed memory is not used again before the next run, so
/// that a late access is still seen.
namespace model::arena {

/// While one lives, `new` serves the checker itself.
class outside {
 public:
  outside() noexcept;
  ~outside();
  outside(const outside&) = delete;
  outside& operator=(const outside&) = delete;

 private:
  bool before_;
};
/// While one lives, `new` serves the scenario.
class inside {
 public:
  inside() noexcept;
  ~inside();
  inside(const inside&) = delete;
  inside& operator=(const inside&) = delete;

 private:
  bool before_;
};

void clear() noexcept;
/// Allocations of this run that were not freed.
[[nodiscard]] std::size_t left() noexcept;
[[nodiscard]] bool has(const void* at) noexcept;
/// For findings: where in the arena.
[[nodiscard]] std::size_t offset(const void* at) noexcept;

}  // namespace model::arena
