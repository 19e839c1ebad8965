#pragma once

#include <cordma/detail/base/assert.hpp>
#include <cordma/memory/slice.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

namespace cordma {

/// Lists the slices of one receive buffer, in order. The list can be posted again unchanged.
class buffer_slices {
 public:
  static constexpr std::size_t size_max = 4;

  buffer_slices() noexcept {}  // Clears nothing: clearing costs as much as the rest of a receive.
  buffer_slices(const local_mr_slice& first) noexcept : size_{1} {  // NOLINT: one is a buffer.
    std::construct_at(at(0), first);
  }
  void push_back(const local_mr_slice& next) noexcept {
    CORDMA_ASSERT(size_ < size_max, "a receive buffer has no room for another slice");
    std::construct_at(at(size_++), next);
  }

  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] bool empty() const noexcept { return size_ == 0; }
  [[nodiscard]] const local_mr_slice* begin() const noexcept {
    return reinterpret_cast<const local_mr_slice*>(bytes_.data());
  }
  [[nodiscard]] const local_mr_slice* end() const noexcept { return begin() + size_; }
  [[nodiscard]] const local_mr_slice& operator[](std::size_t i) const noexcept {
    CORDMA_ASSERT(i < size_, "a receive buffer has no slice of that number");
    return begin()[i];
  }

 private:
  [[nodiscard]] local_mr_slice* at(std::size_t i) noexcept {
    return reinterpret_cast<local_mr_slice*>(bytes_.data()) + i;
  }

  std::uint32_t size_ = 0;
  alignas(local_mr_slice) std::array<std::byte, size_max * sizeof(local_mr_slice)> bytes_;
};

/// A completed receive.
struct message {
  buffer_slices slices{};      ///< The buffer, as it was posted.
  std::size_t size_bytes = 0;  ///< Bytes that arrived, or that a WRITE with immediate data wrote.
  std::optional<std::uint32_t> immediate{};
  /// True for a WRITE with immediate data: the bytes are where the peer wrote them.
  bool is_write = false;

  /// Returns what arrived in the first (mostly the only) slice; empty for a WRITE.
  [[nodiscard]] local_mr_slice payload() const {
    if (is_write || slices.empty()) return {};
    const std::size_t room = slices[0].size_bytes();
    return slices[0].first(size_bytes < room ? size_bytes : room);
  }
};

}  // namespace cordma
