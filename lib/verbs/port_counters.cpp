#include "port_counters.hpp"

#include <cordma/base/unique_fd.hpp>

#include <fcntl.h>
#include <unistd.h>

#include <charconv>
#include <climits>
#include <cstdio>

namespace cordma::verbs {
namespace {

std::optional<std::uint64_t> number_in(const char* path) noexcept {
  const unique_fd file{::open(path, O_RDONLY | O_CLOEXEC)};
  if (!file.is_open()) return std::nullopt;
  std::array<char, 32> text;
  const ssize_t length = ::read(file.get(), text.data(), text.size());
  std::uint64_t number = 0;
  if (length <= 0 || std::from_chars(text.data(), text.data() + length, number).ec != std::errc{}) {
    return std::nullopt;
  }
  return number;
}

}  // namespace

rnr_counters read_rnr_counters(std::string_view device, unsigned port, const char* sys) noexcept {
  rnr_counters all;
  for (std::size_t n = 0; n < all.values.size(); ++n) {
    const std::string_view name = rnr_counters::sources[n].name;
    std::array<char, PATH_MAX> path;
    const int length =
        std::snprintf(path.data(), path.size(), "%s/%.*s/ports/%u/hw_counters/%.*s", sys,
                      int(device.size()), device.data(), port, int(name.size()), name.data());
    if (length > 0 && std::size_t(length) < path.size()) all.values[n] = number_in(path.data());
  }
  return all;
}

std::optional<std::uint32_t> read_qkey_violations(const context& ctx, std::uint8_t port) noexcept {
  ibv_port_attr attr{};
  if (ibv_query_port(ctx.native_handle(), port, &attr) != 0) return std::nullopt;
  return attr.qkey_viol_cntr;
}

}  // namespace cordma::verbs
