#pragma once

#include <cordma/base/error.hpp>
#include <cordma/detail/base/fixed_text.hpp>

namespace cordma::detail {

/// Formats a failure's detail, as printf does.
[[gnu::format(printf, 1, 2)]] fixed_text<240> detail_text(const char* format, ...) noexcept;

[[noreturn]] void throw_failure(errc code, const char* call, fixed_text<240> detail,
                                failure::object_id object = {});
[[noreturn]] void throw_errno(int errno_value, const char* call, fixed_text<240> detail = {},
                              failure::object_id object = {});

}  // namespace cordma::detail
