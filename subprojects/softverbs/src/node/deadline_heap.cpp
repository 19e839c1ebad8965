#include "node/deadline_heap.hpp"

namespace softverbs {

void deadline_heap::put(std::size_t place, entry one) noexcept {
  heap_[place] = one;
  places_[one.index] = static_cast<std::uint16_t>(place);
}

void deadline_heap::rise(std::size_t place, entry one) noexcept {
  while (place != 0 && one.when < heap_[(place - 1) / 2].when) {
    put(place, heap_[(place - 1) / 2]);
    place = (place - 1) / 2;
  }
  put(place, one);
}

void deadline_heap::sink(std::size_t place, entry one) noexcept {
  for (std::size_t child; (child = 2 * place + 1) < heap_.size(); place = child) {
    if (child + 1 < heap_.size() && heap_[child + 1].when < heap_[child].when) ++child;
    if (one.when <= heap_[child].when) break;
    put(place, heap_[child]);
  }
  put(place, one);
}

void deadline_heap::set(std::uint32_t index, time when) noexcept {
  const auto short_index = static_cast<std::uint16_t>(index);
  if (places_[index] == absent) {
    heap_.push_back({});
    rise(heap_.size() - 1, {when, short_index});
  } else if (when < heap_[places_[index]].when) {
    rise(places_[index], {when, short_index});
  }
}

void deadline_heap::forget(std::uint32_t index) noexcept {
  const std::size_t place = places_[index];
  if (place == absent) return;
  places_[index] = absent;
  const entry last = heap_.back();
  heap_.pop_back();
  if (place == heap_.size()) return;
  if (place != 0 && last.when < heap_[(place - 1) / 2].when)
    rise(place, last);
  else
    sink(place, last);
}

std::uint32_t deadline_heap::take_due(time now) noexcept {
  if (heap_.empty() || heap_[0].when > now) return index_set::none;
  const std::uint32_t index = heap_[0].index;
  forget(index);
  return index;
}

}  // namespace softverbs
