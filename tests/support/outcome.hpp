#pragma once

#include <system_error>

namespace cordma::test {

/// Why an operation's result is none; no error for a success.
std::error_code code_of(const auto& outcome) {
  return outcome.has_failure() ? outcome.failure().code : std::error_code{};
}

}  // namespace cordma::test
