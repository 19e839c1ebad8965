#pragma once

#include "group/model_exchange.hpp"

#include <cstdint>
#include <map>

namespace model {

/// Memory without bytes, of any size. For each interval it knows whose data are there: operands of
/// ranks, by a sum of numbers, and their offset.
class interval_memory {
 public:
  struct piece {
    std::uint64_t end = 0;
    std::uint64_t operands = 0;  ///< Sum of the numbers of the ranks whose operands were combined.
    std::uint64_t origin = 0;    ///< The address at which offset 0 of the data would be.
    bool operator==(const piece&) const = default;
  };
  struct snapshot {
    std::uint64_t address = 0;
    std::map<std::uint64_t, piece> pieces;
  };

  local_mr_slice allocate(std::size_t size_bytes) {
    const std::uint64_t address = next_;
    next_ += size_bytes + 4096;
    return {reinterpret_cast<std::byte*>(address), size_bytes, nullptr, 0, 0};
  }
  /// Puts data from `offset` on into memory.
  void define(const local_mr_slice& memory, std::uint64_t operands, std::uint64_t offset = 0) {
    const std::uint64_t begin = address_of(memory);
    insert(begin, {begin + memory.size_bytes(), operands, begin - offset});
  }
  /// Returns true if all of the memory holds these data.
  [[nodiscard]] bool holds(const const_local_mr_slice& memory, std::uint64_t operands,
                           std::uint64_t offset = 0) {
    if (memory.empty()) return true;
    const snapshot content = read(memory);
    const std::uint64_t begin = address_of(memory);
    return content.pieces.size() == 1 && content.pieces.begin()->first == begin &&
           content.pieces.begin()->second ==
               piece{begin + memory.size_bytes(), operands, begin - offset};
  }

  void spoil(const local_mr_slice& memory) {
    cut(address_of(memory));
    cut(address_of(memory) + memory.size_bytes());
    pieces_.erase(pieces_.lower_bound(address_of(memory)),
                  pieces_.lower_bound(address_of(memory) + memory.size_bytes()));
  }
  snapshot read(const const_local_mr_slice& memory) {
    snapshot content{address_of(memory), {}};
    const std::uint64_t end = content.address + memory.size_bytes();
    auto p = pieces_.upper_bound(content.address);
    if (p != pieces_.begin()) --p;
    for (; p != pieces_.end() && p->first < end; ++p) {
      if (p->second.end <= content.address) continue;
      piece part = p->second;
      part.end = std::min(part.end, end);
      content.pieces.emplace(std::max(p->first, content.address), part);
    }
    return content;
  }
  void write(const local_mr_slice& memory, const snapshot& content) {
    spoil(memory);
    const std::uint64_t moved = address_of(memory) - content.address;
    for (const auto& [begin, p] : content.pieces)
      insert(begin + moved, {p.end + moved, p.operands, p.origin + moved});
  }
  void copy(const local_mr_slice& into, const const_local_mr_slice& from) {
    write(into, read(from));
  }
  void combine(const local_mr_slice& into, const const_local_mr_slice& left,
               const const_local_mr_slice& right) {
    const snapshot l = read(left);
    const snapshot r = read(right);
    spoil(into);
    for (std::uint64_t offset = 0; offset < into.size_bytes();) {
      const auto [l_end, l_operands, l_offset] = at(l, offset);
      const auto [r_end, r_operands, r_offset] = at(r, offset);
      if (l_offset != r_offset) throw mistake{"a sum of operands at different offsets"};
      const std::uint64_t end = std::min(l_end, r_end);
      const std::uint64_t begin = address_of(into) + offset;
      insert(begin, {address_of(into) + end, l_operands + r_operands, begin - l_offset});
      offset = end;
    }
  }

 private:
  struct data {
    std::uint64_t end;  // Offset in the memory.
    std::uint64_t operands;
    std::uint64_t offset;  // Offset of the data.
  };
  static std::uint64_t address_of(const const_local_mr_slice& memory) {
    return reinterpret_cast<std::uint64_t>(memory.bytes().data());
  }
  static data at(const snapshot& content, std::uint64_t offset) {
    const std::uint64_t address = content.address + offset;
    auto p = content.pieces.upper_bound(address);
    if (p == content.pieces.begin() || (--p)->second.end <= address)
      throw mistake{"undefined memory was read"};
    return {p->second.end - content.address, p->second.operands, address - p->second.origin};
  }
  void cut(std::uint64_t address) {
    auto p = pieces_.lower_bound(address);
    if (p == pieces_.begin() || (--p)->second.end <= address) return;
    pieces_.emplace(address, p->second);
    p->second.end = address;
  }
  void insert(std::uint64_t begin, piece added) {
    if (begin == added.end) return;
    const auto joins = [&](const piece& other) {
      return other.operands == added.operands && other.origin == added.origin;
    };
    auto next = pieces_.lower_bound(begin);
    if (next != pieces_.begin() && std::prev(next)->second.end == begin &&
        joins(std::prev(next)->second)) {
      begin = std::prev(next)->first;
      pieces_.erase(std::prev(next));
    }
    if (next != pieces_.end() && next->first == added.end && joins(next->second)) {
      added.end = next->second.end;
      pieces_.erase(next);
    }
    pieces_.emplace(begin, added);
  }

  std::map<std::uint64_t, piece> pieces_;  // The key is where a piece begins.
  std::uint64_t next_ = std::uint64_t(1) << 20;
};

}  // namespace model
