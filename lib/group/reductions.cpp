#include "reductions.hpp"

#include "base/failures.hpp"

#include <array>
#include <cstring>
#include <type_traits>

namespace cordma::detail {
namespace {

/// Unsigned, where integers are summed up or multiplied: they wrap around.
template <class T, class = void>
struct arithmetic {
  using type = T;
};
template <class T>
struct arithmetic<T, std::enable_if_t<std::is_integral_v<T>>> {
  using type =
      std::conditional_t<(sizeof(T) < sizeof(unsigned)), unsigned, std::make_unsigned_t<T>>;
};

template <reduction operation, class T>
T combined(T left, T right) noexcept {
  using wide = typename arithmetic<T>::type;
  if constexpr (operation == reduction::sum) return T(wide(left) + wide(right));
  if constexpr (operation == reduction::product) return T(wide(left) * wide(right));
  if constexpr (operation == reduction::min) return right < left ? right : left;
  if constexpr (operation == reduction::max) return left < right ? right : left;
  if constexpr (operation == reduction::bit_and) return T(left & right);
  if constexpr (operation == reduction::bit_or) return T(left | right);
  if constexpr (operation == reduction::bit_xor) return T(left ^ right);
}

template <class T>
T load(const std::byte* from) noexcept {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

// Three loops, because the compiler vectorizes a loop only if it knows which memory is the same.

template <reduction operation, class T>
void combine_left(std::byte* __restrict sum, const std::byte* __restrict right,
                  std::size_t count) noexcept {
  for (std::size_t i = 0; i < count * sizeof(T); i += sizeof(T)) {
    const T result = combined<operation>(load<T>(sum + i), load<T>(right + i));
    std::memcpy(sum + i, &result, sizeof result);
  }
}

template <reduction operation, class T>
void combine_right(const std::byte* __restrict left, std::byte* __restrict sum,
                   std::size_t count) noexcept {
  for (std::size_t i = 0; i < count * sizeof(T); i += sizeof(T)) {
    const T result = combined<operation>(load<T>(left + i), load<T>(sum + i));
    std::memcpy(sum + i, &result, sizeof result);
  }
}

template <reduction operation, class T>
void combine_apart(std::byte* __restrict into, const std::byte* __restrict left,
                   const std::byte* __restrict right, std::size_t count) noexcept {
  for (std::size_t i = 0; i < count * sizeof(T); i += sizeof(T)) {
    const T result = combined<operation>(load<T>(left + i), load<T>(right + i));
    std::memcpy(into + i, &result, sizeof result);
  }
}

template <reduction operation, class T>
void combine(std::byte* into, const std::byte* left, const std::byte* right, std::size_t count,
             const void* /*user*/) noexcept {
  if (into == left) return combine_left<operation, T>(into, right, count);
  if (into == right) return combine_right<operation, T>(left, into, count);
  combine_apart<operation, T>(into, left, right, count);
}

template <class T>
reducer::function function_of(reduction operation) noexcept {
  switch (operation) {
    case reduction::sum: return combine<reduction::sum, T>;
    case reduction::product: return combine<reduction::product, T>;
    case reduction::min: return combine<reduction::min, T>;
    case reduction::max: return combine<reduction::max, T>;
    default: break;
  }
  if constexpr (std::is_integral_v<T>) {
    if (operation == reduction::bit_and) return combine<reduction::bit_and, T>;
    if (operation == reduction::bit_or) return combine<reduction::bit_or, T>;
    if (operation == reduction::bit_xor) return combine<reduction::bit_xor, T>;
  }
  return nullptr;
}

struct typed_functions {
  const char* name;
  std::size_t element_bytes;
  reducer::function (*function)(reduction) noexcept;
};
constexpr std::array<typed_functions, element_types> types{
    {{"int8", 1, function_of<std::int8_t>},
     {"int16", 2, function_of<std::int16_t>},
     {"int32", 4, function_of<std::int32_t>},
     {"int64", 8, function_of<std::int64_t>},
     {"uint8", 1, function_of<std::uint8_t>},
     {"uint16", 2, function_of<std::uint16_t>},
     {"uint32", 4, function_of<std::uint32_t>},
     {"uint64", 8, function_of<std::uint64_t>},
     {"float", 4, function_of<float>},
     {"double", 8, function_of<double>}}};
constexpr std::array<const char*, reductions> operations{"sum",     "product", "min",    "max",
                                                         "bit_and", "bit_or",  "bit_xor"};

}  // namespace

const char* to_string(element_type type) noexcept { return types[std::size_t(type)].name; }
const char* to_string(reduction operation) noexcept { return operations[std::size_t(operation)]; }

reducer reducer_of(element_type type, reduction operation) {
  const typed_functions& typed = types[std::size_t(type)];
  const reducer::function combine = typed.function(operation);
  if (combine == nullptr)
    throw_failure(
        errc::not_supported, "reduction",
        detail_text("%s of %s: bit operations are for integers", to_string(operation), typed.name));
  return {.combine = combine,
          .element_bytes = typed.element_bytes,
          .name = std::uint16_t(1 + int(type) * reductions + int(operation))};
}

}  // namespace cordma::detail
