#pragma once

#include "holding.hpp"

namespace cordma {

// Why a program's call on borrowed memory fails, at this end.

[[noreturn]] void fail_request(errc why, const char* detail,
                               const char* call = "request_remote_mr");
[[noreturn]] void fail_late(const char* call, time_span limit);
/// For memory that was given back, or is on its way: its block knows the reason.
[[noreturn]] void fail_ended(const detail::holding& h, const char* call);
[[noreturn]] void fail_inline(const char* call);

}  // namespace cordma
