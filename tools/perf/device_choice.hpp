#pragma once

#include <cordma/runtime/runtime.hpp>

#include <cstdint>
#include <optional>
#include <string>

namespace perf {

/// The device that one side uses, a port of the device, and a row of the port's GID table.
struct device_choice {
  std::string name{};                        ///< Empty: the first active one.
  std::uint8_t port = 0;                     ///< 0: the first active one.
  std::optional<std::uint32_t> gid_index{};  ///< Unset: cordma chooses.

  [[nodiscard]] cordma::runtime_options runtime_options(
      cordma::completion_mode mode = cordma::completion_mode::event) const {
    return {.device = name, .port = port, .gid_index = gid_index, .cq = {.mode = mode}};
  }
};

}  // namespace perf
