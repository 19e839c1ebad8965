#pragma once

#include <cerrno>
#include <system_error>

namespace softverbs {

/// \errors errno's value. `what` names the call or the resource that failed.
[[noreturn]] inline void throw_errno(const char* what) {
  throw std::system_error{errno, std::generic_category(), what};
}

}  // namespace softverbs
