#pragma once

#include <string_view>

namespace cordma::test {

/// Appends `kind<TAB>text` to this program's file in the folder that the environment variable
/// CORDMA_TEST_LOG names; does nothing when it is not set. One write per line, so that the log of a
/// program that crashes is complete. `./dev test` counts test cases from these files
/// (tests/support/tally.py).
void log_line(std::string_view kind, std::string_view text);

}  // namespace cordma::test
