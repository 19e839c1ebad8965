#pragma once

#include <cordma/verbs/device.hpp>

#include <cstdint>
#include <optional>
#include <string_view>

namespace cordma::verbs {

/// Reads the counters. Values that the device lacks stay empty; soft0 has none.
/// \param sys  root of sysfs, which tests replace.
/// \thread any. \cost  three system calls for each counter that exists, one for each that does not.
rnr_counters read_rnr_counters(std::string_view device, unsigned port,
                               const char* sys = "/sys/class/infiniband") noexcept;

/// Reads how many datagrams with a wrong Q_Key came to the port; none: the port cannot be asked.
/// \thread any. \cost  a system call.
std::optional<std::uint32_t> read_qkey_violations(const context& ctx, std::uint8_t port) noexcept;

}  // namespace cordma::verbs
