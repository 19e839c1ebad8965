#pragma once

#include <cordma/base/error.hpp>

#include <catch2/catch.hpp>

#include <system_error>

namespace cordma::test {

/// Why an operation's result is none; no error for a success.
std::error_code code_of(const auto& outcome) {
  return outcome.has_failure() ? outcome.failure().code : std::error_code{};
}

/// Gives the failure of the `error` that `action` must throw.
failure failure_of(auto action) {
  try {
    action();
  } catch (const error& e) {
    return e.failure();
  }
  FAIL("nothing failed");
  return {};
}

}  // namespace cordma::test
