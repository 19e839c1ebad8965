#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace cordma {

/// Gives things numbers that do not recur for long: a number is a place in the table, and how often
/// the place was taken. 0 is no number. \thread one.
template <class T>
class id_table {
 public:
  explicit id_table(std::size_t most) noexcept : most_{most} {}

  /// Returns 0 if the table is full. \errors bad_alloc.
  std::uint64_t insert(T& thing) {
    if (free_.empty()) {
      if (places_.size() == most_) return 0;
      free_.reserve(places_.size() + 1);  // The reservation lets erasing do without memory.
      places_.push_back({});
      free_.push_back(std::uint32_t(places_.size() - 1));
    }
    const std::uint32_t index = free_.back();
    free_.pop_back();
    places_[index].thing = &thing;
    return std::uint64_t{places_[index].generation} << 32 | index;
  }
  /// Null: the number is nobody's, or no longer anybody's.
  [[nodiscard]] T* find(std::uint64_t id) const noexcept {
    const std::size_t index = id & 0xffff'ffff;
    if (index >= places_.size() || places_[index].generation != id >> 32) return nullptr;
    return places_[index].thing;
  }
  void erase(std::uint64_t id) noexcept {
    place& freed = places_[id & 0xffff'ffff];
    freed.thing = nullptr;
    ++freed.generation;
    if (freed.generation == 0) freed.generation = 1;
    free_.push_back(std::uint32_t(id & 0xffff'ffff));
  }
  void for_each(const auto& f) const {
    for (const place& p : places_)
      if (p.thing != nullptr) f(*p.thing);
  }
  [[nodiscard]] std::size_t size() const noexcept { return places_.size() - free_.size(); }

 private:
  struct place {
    T* thing = nullptr;
    std::uint32_t generation = 1;
  };
  const std::size_t most_;
  std::vector<place> places_;
  std::vector<std::uint32_t> free_;
};

}  // namespace cordma
