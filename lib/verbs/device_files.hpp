#pragma once

#include <cordma/base/error.hpp>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace cordma::verbs::detail {

/// A device as the kernel shows it: libibverbs omits devices whose file it cannot see.
struct device_file {
  std::string device;  ///< "rxe0".
  std::string path;    ///< "/dev/infiniband/uverbs0".
  int open_error = 0;  ///< errno of opening it for reading and writing; 0: success.
};

/// Devices of the kernel. Tests replace the folders.
struct device_files {
  bool has_device = false;  ///< /sys/class/infiniband is not empty.
  std::vector<device_file> files;

  static device_files read(const std::string& sys = "/sys/class", const std::string& dev = "/dev");
};

/// Returns why `device` (empty: any) exists and cannot be used, with the way out. Returns nothing
/// when the kernel has none of that name, or when it can be opened. The function is pure.
std::optional<failure> why_unusable(const device_files& found, std::string_view device);

/// Returns the failure for one file; `errno_value` is the result of opening it.
failure cannot_open(const char* call, std::string_view device, std::string_view path,
                    int errno_value) noexcept;

}  // namespace cordma::verbs::detail
