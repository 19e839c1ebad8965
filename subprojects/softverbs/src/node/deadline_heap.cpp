#include "node/deadline_heap.hpp"

namespace softverbs {

void deadline_heap::put(std::size_t position, entry one) noexcept {
  heap_[position] = one;
  positions_[one.index] = static_cast<std::uint16_t>(position);
}

void deadline_heap::rise(std::size_t position, entry one) noexcept {
  while (position != 0 && one.when < heap_[(position - 1) / 2].when) {
    put(position, heap_[(position - 1) / 2]);
    position = (position - 1) / 2;
  }
  put(position, one);
}

void deadline_heap::sink(std::size_t position, entry one) noexcept {
  for (std::size_t child; (child = 2 * position + 1) < heap_.size(); position = child) {
    if (child + 1 < heap_.size() && heap_[child + 1].when < heap_[child].when) ++child;
    if (one.when <= heap_[child].when) break;
    put(position, heap_[child]);
  }
  put(position, one);
}

void deadline_heap::set(std::uint32_t index, time when) noexcept {
  const auto short_index = static_cast<std::uint16_t>(index);
  if (positions_[index] == absent) {
    heap_.push_back({});
    rise(heap_.size() - 1, {when, short_index});
  } else if (when < heap_[positions_[index]].when) {
    rise(positions_[index], {when, short_index});
  }
}

void deadline_heap::forget(std::uint32_t index) noexcept {
  const std::size_t position = positions_[index];
  if (position == absent) return;
  positions_[index] = absent;
  const entry last = heap_.back();
  heap_.pop_back();
  if (position == heap_.size()) return;
  if (position != 0 && last.when < heap_[(position - 1) / 2].when)
    rise(position, last);
  else
    sink(position, last);
}

std::uint32_t deadline_heap::take_due(time now) noexcept {
  if (heap_.empty() || heap_[0].when > now) return index_set::none;
  const std::uint32_t index = heap_[0].index;
  forget(index);
  return index;
}

}  // namespace softverbs
