#include "path_options.hpp"

#include "size.hpp"

#include <array>
#include <stdexcept>
#include <string>
#include <utility>

namespace perf {
namespace {

constexpr std::array<std::pair<std::uint32_t, ibv_mtu>, 5> mtus{{{256, IBV_MTU_256},
                                                                 {512, IBV_MTU_512},
                                                                 {1024, IBV_MTU_1024},
                                                                 {2048, IBV_MTU_2048},
                                                                 {4096, IBV_MTU_4096}}};

std::optional<ibv_mtu> mtu_of(std::uint32_t size_bytes) noexcept {
  for (const auto& [bytes, mtu] : mtus)
    if (bytes == size_bytes) return mtu;
  return {};
}

void check_most(const char* name, const std::optional<std::uint32_t>& value, std::uint32_t most) {
  if (value) check_range(name, *value, 0, most);
}

template <class Number>
Number packed(const std::optional<std::uint32_t>& value) noexcept {
  return Number(value ? *value + 1 : 0);
}
std::optional<std::uint32_t> unpacked(std::uint32_t value) noexcept {
  return value == 0 ? std::nullopt : std::optional{value - 1};
}

}  // namespace

void check(const path_options& path) {
  check_most("--sl", path.service_level, path_options::service_level_max);
  check_most("--tclass", path.traffic_class, path_options::traffic_class_max);
  check_most("--inline", path.inline_bytes, path_options::inline_max);
  check_most("--retries", path.retries, path_options::retries_max);
  check_most("--rnr-retries", path.rnr_retries, path_options::retries_max);
  if (path.mtu_bytes && !mtu_of(*path.mtu_bytes)) {
    throw std::invalid_argument{"--mtu " + std::to_string(*path.mtu_bytes) +
                                ": it is one of 256, 512, 1024, 2048, 4096"};
  }
}

const char* option_of_connections(const path_options& path) noexcept {
  if (path.service_level) return "--sl";
  if (path.traffic_class) return "--tclass";
  if (path.mtu_bytes) return "--mtu";
  return option_of_retries(path);
}

const char* option_of_retries(const path_options& path) noexcept {
  if (path.retries) return "--retries";
  return path.rnr_retries ? "--rnr-retries" : nullptr;
}

void apply(const path_options& path, cordma::connection_options& to) noexcept {
  if (path.service_level) to.fabric.service_level = std::uint8_t(*path.service_level);
  if (path.traffic_class) to.fabric.traffic_class = std::uint8_t(*path.traffic_class);
  if (path.mtu_bytes) to.fabric.mtu = mtu_of(*path.mtu_bytes);
  if (path.inline_bytes) to.capabilities.inline_max = *path.inline_bytes;
  if (path.retries) to.retry_cnt = std::uint8_t(*path.retries);
  if (path.rnr_retries) to.rnr_retry = std::uint8_t(*path.rnr_retries);
}

path_frame encode(const path_options& path) noexcept {
  return {.inline_bytes = packed<std::uint32_t>(path.inline_bytes),
          .mtu_bytes = packed<std::uint16_t>(path.mtu_bytes),
          .traffic_class = packed<std::uint16_t>(path.traffic_class),
          .service_level = packed<std::uint8_t>(path.service_level),
          .retries = packed<std::uint8_t>(path.retries),
          .rnr_retries = packed<std::uint8_t>(path.rnr_retries)};
}

path_options decode(const path_frame& frame) noexcept {
  return {.service_level = unpacked(frame.service_level),
          .traffic_class = unpacked(frame.traffic_class),
          .mtu_bytes = unpacked(frame.mtu_bytes),
          .inline_bytes = unpacked(frame.inline_bytes),
          .retries = unpacked(frame.retries),
          .rnr_retries = unpacked(frame.rnr_retries)};
}

}  // namespace perf
