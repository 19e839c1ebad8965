#pragma once

#include <cordma/group/reduction.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace cordma::detail {

/// The combination of elements in one operation: a `reduction`, or a function of the program's.
struct reducer_ref {
  using function = void (*)(std::byte* into, const std::byte* left, const std::byte* right,
                            std::size_t count, const void* program) noexcept;
  element_type type{};
  reduction how{};
  function combine = nullptr;  ///< Null: `how` combines.
  const void* program = nullptr;
  std::size_t element_bytes = 0;

  template <class T, class F>
  static reducer_ref of(const F& f) noexcept {
    reducer_ref r{.element_bytes = sizeof(T)};
    if constexpr (std::is_same_v<F, reduction>) {
      r.type = element_type_of<T>();
      r.how = f;
    } else {
      r.program = &f;
      r.combine = [](std::byte* into, const std::byte* left, const std::byte* right,
                     std::size_t count, const void* kept) noexcept {
        for (std::size_t i = 0; i < count; ++i) {
          T a, b;
          std::memcpy(&a, left + i * sizeof(T), sizeof(T));
          std::memcpy(&b, right + i * sizeof(T), sizeof(T));
          const T both = (*static_cast<const F*>(kept))(a, b);
          std::memcpy(into + i * sizeof(T), &both, sizeof(T));
        }
      };
    }
    return r;
  }
};

/// True if an `F` combines elements of type `T`: a `reduction`, or a function of the program's.
template <class F, class T>
concept combines =
    std::is_trivially_copyable_v<T> && ((std::is_same_v<F, reduction> && reducible<T>) ||
                                        std::is_invocable_r_v<T, const F&, const T&, const T&>);

}  // namespace cordma::detail
