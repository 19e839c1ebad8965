#pragma once

#include <string_view>

namespace cordma::test {

/// Marks the running test case as skipped; `CORDMA_SKIP` calls it.
void skip(std::string_view reason);

}  // namespace cordma::test

/// Ends the running test case as skipped, not passed: for what this device or kernel cannot do.
/// Only directly in a TEST_CASE, because it returns. tests/skips.txt must list the case, or
/// `./dev test` fails. (Catch2 2.13 has no SKIP of its own.)
#define CORDMA_SKIP(reason)         \
  do {                              \
    ::cordma::test::skip((reason)); \
    return;                         \
  } while (false)
