#pragma once

#include <cordma/verbs/device.hpp>

#include <string_view>

namespace cordma::verbs {

/// Reads the counters. Values that the device lacks stay empty; soft0 has none.
/// \param sys  root of sysfs, which tests replace.
/// \thread any. \cost  three system calls for each counter that exists, one for each that does not.
rnr_counters read_rnr_counters(std::string_view device, unsigned port,
                               const char* sys = "/sys/class/infiniband") noexcept;

}  // namespace cordma::verbs
