#pragma once

#include <cordma/base/error.hpp>
#include <cordma/detail/base/fixed_text.hpp>

#include <cstddef>
#include <span>
#include <string_view>

namespace cordma::detail {

/// Formats a failure's detail, as printf does.
[[gnu::format(printf, 1, 2)]] fixed_text<240> detail_text(const char* format, ...) noexcept;

/// Bytes of a failure's text for which nothing is cut off.
inline constexpr std::size_t failure_text_max = 640;
/// Writes what `failure::to_string` returns, but printable, and without an allocation.
std::string_view write_failure(const failure& f, std::span<char> into) noexcept;

[[noreturn]] void throw_failure(errc code, const char* call, fixed_text<240> detail,
                                failure::object_id object = {});
[[noreturn]] void throw_errno(int errno_value, const char* call, fixed_text<240> detail = {},
                              failure::object_id object = {});

}  // namespace cordma::detail
