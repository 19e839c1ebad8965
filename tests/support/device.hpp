#pragma once

#include <cstdlib>
#include <string>

namespace cordma::test {

/// The RDMA device that the [device] cases use: what the environment's CORDMA_TEST_DEVICE names;
/// empty, the first active one.
inline std::string device_name() {
  const char* const name = std::getenv("CORDMA_TEST_DEVICE");  // NOLINT(concurrency-mt-unsafe)
  return name != nullptr ? name : "";
}

/// Tells whether the device is softverbs', which needs no file and locks no memory.
inline bool is_soft() { return device_name().starts_with("soft"); }

/// Tells whether the device is the kernel's Soft-RoCE. docs/devices.md lists where Soft-RoCE
/// differs from the specification. A test asks only for those differences, and says so.
inline bool is_rxe() { return device_name().starts_with("rxe"); }

}  // namespace cordma::test
