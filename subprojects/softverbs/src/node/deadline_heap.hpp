#pragma once

#include "wire/index_set.hpp"
#include "wire/time.hpp"

#include <cstdint>
#include <vector>

namespace softverbs {

/// The deadlines of QP indices, at most one of each, earliest first. Allocates once. Callers lock.
class deadline_heap {
 public:
  using time = clock::time_point;

  deadline_heap() : positions_(indices_max, absent) { heap_.reserve(indices_max); }

  /// Sets the deadline of an index, unless its current one is earlier.
  void set(std::uint32_t index, time when) noexcept;
  void forget(std::uint32_t index) noexcept;
  [[nodiscard]] time next() const noexcept { return heap_.empty() ? time::max() : heap_[0].when; }
  /// Removes and returns the index with the earliest deadline, if that is due; else
  /// index_set::none.
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
