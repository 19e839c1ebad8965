#pragma once

#include <cordma/agent/lending.hpp>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <new>
#include <vector>

namespace cordma {

/// Memory that came back and has a registration of its own, for the next request of its size:
/// registering costs a system call each time. Thread: the executor's. Cost: once warm, no
/// allocation.
class loan_stock {
 public:
  static constexpr std::size_t pieces_max = 64;
  static constexpr std::size_t piece_bytes_max = std::size_t{64} << 10;

  /// False: it stays where it is. \param from  without a window.
  bool keep(lent_memory& from) noexcept {
    if (pieces_.size() == pieces_max || from.memory.size_bytes() > piece_bytes_max) return false;
    try {
      pieces_.reserve(pieces_.size() + 1);
    } catch (const std::bad_alloc&) {
      return false;
    }
    bytes_ += from.memory.size_bytes();
    pieces_.push_back(std::move(from));
    return true;
  }

  /// Zeroed, as new memory is. False: there is none.
  bool take(std::size_t size_bytes, std::size_t alignment, lent_memory& into) noexcept {
    const auto kept = std::ranges::find_if(pieces_, [&](const lent_memory& piece) {
      const auto address = reinterpret_cast<std::uintptr_t>(piece.memory.bytes().data());
      return piece.memory.size_bytes() == size_bytes && address % alignment == 0;
    });
    if (kept == pieces_.end()) return false;
    into = std::move(*kept);
    if (&*kept != &pieces_.back()) *kept = std::move(pieces_.back());
    pieces_.pop_back();
    bytes_ -= size_bytes;
    std::memset(into.memory.bytes().data(), 0, size_bytes);
    return true;
  }

  void clear() noexcept {
    pieces_.clear();
    bytes_ = 0;
  }
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }

 private:
  std::vector<lent_memory> pieces_;
  std::size_t bytes_ = 0;
};

}  // namespace cordma
