#pragma once

#include <cordma/detail/base/step.hpp>

#include <atomic>
#include <cstddef>

namespace cordma {

/// Bytes that threads allocated and did not free. A number may be negative: its thread frees what
/// others allocated.
class bytes_in_use {
 public:
  /// Adds bytes, or subtracts them. Release: a reader that sees no bytes in use also sees that this
  /// thread has finished. \thread one, without a locked instruction.
  void add(std::ptrdiff_t bytes) noexcept {
    value_.store(value_.load(std::memory_order_relaxed) + bytes, std::memory_order_release);
  }
  /// \thread any, if none calls `add`.
  void add_shared(std::ptrdiff_t bytes) noexcept {
    value_.fetch_add(bytes, std::memory_order_release);
  }
  /// \thread any.
  [[nodiscard]] std::ptrdiff_t value() const noexcept {
    return value_.load(std::memory_order_acquire);
  }

 private:
  detail::modelled_atomic<std::ptrdiff_t> value_{0};
};

}  // namespace cordma
