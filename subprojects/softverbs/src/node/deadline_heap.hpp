#pragma once

#include "wire/index_set.hpp"

#include <chrono>
#include <cstdint>
#include <vector>

namespace softverbs {

/// One deadline per QP index, the earliest first. Memory is allocated once. Callers lock.
class deadline_heap {
 public:
  using time = std::chrono::steady_clock::time_point;

  deadline_heap() : positions_(indices_max, absent) { heap_.reserve(indices_max); }

  /// The earlier of this and the one it had.
  void set(std::uint32_t index, time when) noexcept;
  void forget(std::uint32_t index) noexcept;
  [[nodiscard]] time next() const noexcept { return heap_.empty() ? time::max() : heap_[0].when; }
  /// The index whose deadline is the earliest, if that is not after `now`; index_set::none.
  std::uint32_t take_due(time now) noexcept;

 private:
  static constexpr std::uint16_t absent = 0xffff;
  struct entry {
    time when;
    std::uint16_t index;
  };
  void put(std::size_t position, entry one) noexcept;
  void rise(std::size_t position, entry one) noexcept;
  void sink(std::size_t position, entry one) noexcept;

  std::vector<std::uint16_t> positions_;  ///< the position of an index in the heap
  std::vector<entry> heap_;
};

}  // namespace softverbs
