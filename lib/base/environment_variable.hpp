#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace cordma::detail {

/// Returns the text of a variable of the environment. Null: it is unset, or the program has
/// privileges that its user lacks (secure_getenv(3)). An empty text is a text.
const char* variable_text(const char* variable) noexcept;

/// \errors EINVAL, which names the variable and its text. `is_what` follows the text: "is no
/// device".
[[noreturn]] void throw_wrong_variable(const char* variable, const char* text,
                                       std::string_view is_what);

/// Returns the value of digits: decimal, or hexadecimal after 0x. None: there is anything else.
std::optional<std::uint64_t> parse_number(std::string_view text) noexcept;

/// Returns a variable's value; none if it is unset. \errors  EINVAL: no number, or none from `low`
///   to `high`.
std::optional<std::uint64_t> variable_number(const char* variable, std::uint64_t low,
                                             std::uint64_t high);

template <class T>
struct named_value {
  std::string_view name;
  T value;
};

/// Returns the value of the choice that a variable names; none if it is unset. `is_what` lists the
/// choices: "is none of A and B". \errors  EINVAL: no such choice.
template <class T, std::size_t N>
std::optional<T> variable_choice(const char* variable, const std::array<named_value<T>, N>& choices,
                                 std::string_view is_what) {
  const char* const text = variable_text(variable);
  if (text == nullptr) return std::nullopt;
  for (const named_value<T>& one : choices)
    if (one.name == text) return one.value;
  throw_wrong_variable(variable, text, is_what);
}

}  // namespace cordma::detail
