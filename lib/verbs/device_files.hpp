#pragma once

#include <cordma/base/error.hpp>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace cordma::verbs::detail {

/// A device as the kernel shows it: libibverbs leaves out those whose file it cannot see.
struct device_file {
  std::string device;  ///< "rxe0".
  std::string path;    ///< "/dev/infiniband/uverbs0".
  int open_error = 0;  ///< errno of opening it for reading and writing; 0: it can be.
};

/// What the kernel has. The folders are a seam for tests.
struct device_files {
  bool has_device = false;  ///< /sys/class/infiniband is not empty.
  std::vector<device_file> files;

  static device_files look(const std::string& sys = "/sys/class", const std::string& dev = "/dev");
};

/// Why `device` (empty: any) is there and cannot be used, with the way out; nothing when the kernel
/// has none of that name, or when it can be opened. Pure.
std::optional<failure> why_unusable(const device_files& found, std::string_view device);

/// The same for one file. `errno_value`: what opening it gave.
failure cannot_open(const char* call, std::string_view device, std::string_view path,
                    int errno_value) noexcept;

}  // namespace cordma::verbs::detail
