#pragma once

#include "support/connected_pair.hpp"

#include <cordma/runtime/runtime_group.hpp>

namespace cordma::test {

/// Runtimes on the device under test, on so many threads.
inline runtime_group_options group_of(unsigned threads) {
  return {.each = [](unsigned) { return on_test_device(); }, .threads = threads};
}

}  // namespace cordma::test
