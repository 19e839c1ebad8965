#pragma once

#include "lending.hpp"

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

  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
  [[nodiscard]] bool is_empty() const noexcept { return pieces_.empty(); }
  [[nodiscard]] bool is_full() const noexcept { return pieces_.size() == pieces_max; }

  /// Moves `from`, which has no window, into the stock. False: no room, and `from` is unchanged.
  bool keep(lent_memory& from) noexcept {
    if (is_full() || from.memory.size_bytes() > piece_bytes_max) return false;
    try {
      pieces_.reserve(pieces_.size() + 1);
    } catch (const std::bad_alloc&) {
      return false;
    }
    bytes_ += from.memory.size_bytes();
    pieces_.push_back(std::move(from));
    return true;
  }

  /// Takes the piece kept last that fits, zeroed like new memory. False: none fits.
  bool take(std::size_t size_bytes, std::size_t alignment, lent_memory& into) noexcept {
    const auto kept = std::find_if(pieces_.rbegin(), pieces_.rend(), [&](const lent_memory& piece) {
      const auto address = reinterpret_cast<std::uintptr_t>(piece.memory.bytes().data());
      return piece.memory.size_bytes() == size_bytes && address % alignment == 0;
    });
    if (kept == pieces_.rend()) return false;
    into = remove(std::prev(kept.base()));
    std::memset(into.memory.bytes().data(), 0, size_bytes);
    return true;
  }

  /// The stock must not be empty.
  [[nodiscard]] lent_memory take_oldest() noexcept { return remove(pieces_.begin()); }

 private:
  lent_memory remove(std::vector<lent_memory>::iterator at) noexcept {
    lent_memory removed = std::move(*at);
    pieces_.erase(at);
    bytes_ -= removed.memory.size_bytes();
    return removed;
  }

  std::vector<lent_memory> pieces_;
  std::size_t bytes_ = 0;
};

}  // namespace cordma
