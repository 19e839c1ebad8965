#pragma once

#include <cordma/verbs/device.hpp>

#include <string_view>

namespace cordma::verbs {

/// Values that the device lacks stay empty; soft0 has none.
/// \param sys  a seam for tests.
/// \thread any. \cost  three system calls for each that is there, one for each that is not.
rnr_counters read_rnr_counters(std::string_view device, unsigned port,
                               const char* sys = "/sys/class/infiniband") noexcept;

}  // namespace cordma::verbs
