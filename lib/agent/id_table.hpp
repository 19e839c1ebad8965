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
  std::uint64_t insert(T& object) {
    if (free_.empty()) {
      if (slots_.size() == most_) return 0;
      free_.reserve(slots_.size() + 1);  // The reservation lets erasing do without memory.
      slots_.push_back({});
      free_.push_back(std::uint32_t(slots_.size() - 1));
    }
    const std::uint32_t index = free_.back();
    free_.pop_back();
    slots_[index].object = &object;
    return std::uint64_t{slots_[index].generation} << 32 | index;
  }
  /// Null: the number is nobody's, or no longer anybody's.
  [[nodiscard]] T* find(std::uint64_t id) const noexcept {
    const std::size_t index = id & 0xffff'ffff;
    if (index >= slots_.size() || slots_[index].generation != id >> 32) return nullptr;
    return slots_[index].object;
  }
  void erase(std::uint64_t id) noexcept {
    slot& freed = slots_[id & 0xffff'ffff];
    freed.object = nullptr;
    ++freed.generation;
    if (freed.generation == 0) freed.generation = 1;
    free_.push_back(std::uint32_t(id & 0xffff'ffff));
  }
  void for_each(const auto& f) const {
    for (const slot& p : slots_)
      if (p.object != nullptr) f(*p.object);
  }
  [[nodiscard]] std::size_t size() const noexcept { return slots_.size() - free_.size(); }

 private:
  struct slot {
    T* object = nullptr;
    std::uint32_t generation = 1;
  };
  const std::size_t most_;
  std::vector<slot> slots_;
  std::vector<std::uint32_t> free_;
};

}  // namespace cordma
