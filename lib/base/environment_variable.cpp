#include "environment_variable.hpp"

#include "failures.hpp"

#include <cerrno>
#include <charconv>
#include <cstdlib>

namespace cordma::detail {

const char* variable_text(const char* variable) noexcept { return ::secure_getenv(variable); }

void throw_wrong_variable(const char* variable, const char* text, std::string_view is_what) {
  throw_errno(EINVAL, variable,
              detail_text("'%.60s' %.*s", text, int(is_what.size()), is_what.data()));
}

std::optional<std::uint64_t> parse_number(std::string_view text) noexcept {
  const bool is_hex = text.starts_with("0x") || text.starts_with("0X");
  if (is_hex) text.remove_prefix(2);
  std::uint64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value, is_hex ? 16 : 10);
  if (error != std::errc{} || rest != end) return std::nullopt;
  return value;
}

std::optional<std::uint64_t> variable_number(const char* variable, std::uint64_t low,
                                             std::uint64_t high) {
  const char* const text = variable_text(variable);
  if (text == nullptr) return std::nullopt;
  const std::optional<std::uint64_t> value = parse_number(text);
  if (value && *value >= low && *value <= high) return value;
  throw_wrong_variable(
      variable, text,
      detail_text("is no number from %llu to %llu, decimal or hexadecimal (0x)",
                  static_cast<unsigned long long>(low), static_cast<unsigned long long>(high))
          .view());
}

}  // namespace cordma::detail
