#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace cordma {

enum class reduction : std::uint8_t;

namespace detail {

enum class element_type : std::uint8_t {
  int8,
  int16,
  int32,
  int64,
  uint8,
  uint16,
  uint32,
  uint64,
  float32,
  float64,
};

/// A type of which a group knows the operations.
template <class T>
concept reducible = (std::integral<T> && !std::same_as<T, bool> && sizeof(T) <= 8) ||
                    std::same_as<T, float> || std::same_as<T, double>;

template <reducible T>
constexpr element_type element_type_of() noexcept {
  if constexpr (std::same_as<T, float>) return element_type::float32;
  if constexpr (std::same_as<T, double>) return element_type::float64;
  const element_type first = std::signed_integral<T> ? element_type::int8 : element_type::uint8;
  constexpr int power = sizeof(T) == 1 ? 0 : sizeof(T) == 2 ? 1 : sizeof(T) == 4 ? 2 : 3;
  return element_type(int(first) + power);
}

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

}  // namespace detail
}  // namespace cordma
