#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace cordma::verbs {

/// Receiver-not-ready (RNR) counters of one port, for all programs of the machine, as far as the
/// driver reports them (/sys/class/infiniband/DEVICE/ports/N/hw_counters).
struct rnr_counters {
  struct source {
    std::string_view name;  ///< Name in the kernel.
    std::string_view help;
  };
  static constexpr std::array<source, 5> sources{{
      {"out_of_buffer", "this side had no receive for a message (mlx5)"},
      {"rnr_nak_retry_err", "the peer answered RNR to a request (mlx5)"},
      {"send_rnr_err", "this side answered RNR (rxe)"},
      {"rcvd_rnr_err", "the peer answered RNR to a request (rxe)"},
      {"retry_rnr_exceeded_err", "requests given up after the last RNR (rxe)"},
  }};
  /// Values in the order of `sources`; none: the device does not have the counter.
  std::array<std::optional<std::uint64_t>, sources.size()> values{};
};

}  // namespace cordma::verbs
