#pragma once

#include <cordma/connection/connection_options.hpp>

#include <cstdint>
#include <optional>

namespace perf {

/// Options of the measured queue pairs, which both sides use alike. Unset: cordma's default.
struct path_options {
  std::optional<std::uint32_t> service_level{};
  std::optional<std::uint32_t> traffic_class{};
  std::optional<std::uint32_t> mtu_bytes{};
  std::optional<std::uint32_t> inline_bytes{};
  std::optional<std::uint32_t> retries{};
  std::optional<std::uint32_t> rnr_retries{};

  static constexpr std::uint32_t service_level_max = 15;
  static constexpr std::uint32_t traffic_class_max = 255;
  static constexpr std::uint32_t inline_max = 64 * 1024;
  static constexpr std::uint32_t retries_max = 7;

  bool operator==(const path_options&) const = default;
};

/// \errors std::invalid_argument: the first value out of range, with the option and the range.
void check(const path_options& path);
/// Returns the option that only a connection has, if one is set; else null.
const char* option_of_connections(const path_options& path) noexcept;
/// Returns the option of a transport that repeats requests, if one is set; else null.
const char* option_of_retries(const path_options& path) noexcept;
/// Replaces what is set. `path` has passed `check`.
void apply(const path_options& path, cordma::connection_options& to) noexcept;

/// The bytes in which a client sends the options: 0 is unset, else the value plus 1.
struct path_frame {
  std::uint32_t inline_bytes = 0;
  std::uint16_t mtu_bytes = 0;
  std::uint16_t traffic_class = 0;
  std::uint8_t service_level = 0;
  std::uint8_t retries = 0;
  std::uint8_t rnr_retries = 0;
  std::uint8_t reserved = 0;
};
path_frame encode(const path_options& path) noexcept;
path_options decode(const path_frame& frame) noexcept;

}  // namespace perf
