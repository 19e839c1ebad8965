#pragma once

#include "group/collective_call.hpp"

#include <cordma/group/group.hpp>

namespace cordma::detail {

inline constexpr int element_types = 10;
inline constexpr int reductions = 7;

/// Returns the operation on elements of a type, at any address. `reducer::name` is from 1 to 255; a
/// program's own operations have others.
/// \errors errc::not_supported: a bit operation on floating-point numbers; names both.
[[nodiscard]] reducer reducer_of(element_type type, reduction operation);
[[nodiscard]] const char* to_string(element_type type) noexcept;
[[nodiscard]] const char* to_string(reduction operation) noexcept;

}  // namespace cordma::detail
