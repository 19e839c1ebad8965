#pragma once

#include <cordma/detail/base/export.hpp>
#include <cordma/memory/local_mr.hpp>
#include <cordma/memory/slice.hpp>

#include <cstddef>
#include <span>

namespace cordma {
class group;
}

namespace cordma::detail {

/// A copy of the program's memory, in registered memory of a group's runtime.
class CORDMA_EXPORT registered_copy {
 public:
  registered_copy(const group& g, std::span<const std::byte> bytes);
  registered_copy(const group& g, std::span<std::byte> bytes);
  [[nodiscard]] local_mr_slice slice() noexcept;
  [[nodiscard]] const_local_mr_slice slice() const noexcept;
  /// Copies the bytes to where they came from.
  void copy_back() noexcept;

 private:
  std::span<std::byte> original_;
  local_mr copy_;
};

}  // namespace cordma::detail
