#pragma once

#include "group/model_exchange.hpp"

#include <algorithm>
#include <cstring>
#include <deque>

namespace model {

/// Memory with guard bytes around each allocation.
class byte_memory {
 public:
  using snapshot = std::vector<std::byte>;
  explicit byte_memory(const reducer* reduction = nullptr) : reduction_{reduction} {}

  local_mr_slice allocate(std::size_t size_bytes) {
    std::vector<std::byte>& block = blocks_.emplace_back(size_bytes + 2 * guard_bytes, guard);
    const local_mr_slice memory{block.data() + guard_bytes, size_bytes, nullptr, 0, 0};
    spoil(memory);
    return memory;
  }
  /// Makes the bytes undefined.
  void spoil(const local_mr_slice& memory) {
    if (memory.size_bytes() != 0) std::memset(memory.bytes().data(), 0xdd, memory.size_bytes());
  }
  snapshot read(const const_local_mr_slice& memory) {
    const std::byte* const first = memory.bytes().data();
    return {first, first + memory.size_bytes()};
  }
  void write(const local_mr_slice& memory, const snapshot& content) {
    if (!content.empty()) std::memcpy(memory.bytes().data(), content.data(), content.size());
  }
  void copy(const local_mr_slice& into, const const_local_mr_slice& from) {
    if (overlap(into, from)) throw mistake{"a copy onto a part of itself"};
    write(into, read(from));
  }
  void combine(const local_mr_slice& into, const const_local_mr_slice& left,
               const const_local_mr_slice& right) {
    for (const const_local_mr_slice& one : {left, right})
      if (into.bytes().data() != one.bytes().data() && overlap(into, one))
        throw mistake{"a sum onto a part of an operand"};
    if (into.size_bytes() % reduction_->element_bytes != 0) throw mistake{"a part of an element"};
    reduction_->combine(into.bytes().data(), left.bytes().data(), right.bytes().data(),
                        into.size_bytes() / reduction_->element_bytes, reduction_->user);
  }
  /// Returns true if nobody wrote outside of an allocation.
  [[nodiscard]] bool is_intact() const {
    return std::ranges::all_of(blocks_, [](const std::vector<std::byte>& block) {
      return is_guard(block.data()) && is_guard(block.data() + block.size() - guard_bytes);
    });
  }

 private:
  static constexpr std::size_t guard_bytes = 32;
  static constexpr std::byte guard{0xa5};
  static bool is_guard(const std::byte* first) {
    static const std::vector<std::byte> whole(guard_bytes, guard);
    return std::memcmp(first, whole.data(), guard_bytes) == 0;
  }
  static bool overlap(const const_local_mr_slice& a, const const_local_mr_slice& b) {
    return a.bytes().data() < b.bytes().data() + b.size_bytes() &&
           b.bytes().data() < a.bytes().data() + a.size_bytes();
  }

  const reducer* reduction_;
  std::deque<std::vector<std::byte>> blocks_;
};

}  // namespace model
