#pragma once

#include "page.hpp"

#include <array>
#include <chrono>
#include <cstddef>
#include <optional>
#include <string_view>

namespace top {

using seconds = std::chrono::duration<double>;

/// How a figure comes from what a page says.
enum class figure_kind : unsigned char {
  rate,   ///< Rise of a counter, per second.
  now,    ///< A gauge, or a counter since the start.
  bytes,  ///< A gauge of bytes.
  ratio,  ///< Rise of a counter, per rise of another one.
};

/// In place of a kind of request: all that move data, but for receives, which wait for a peer.
inline constexpr std::string_view moves_data = "data";

/// A column of the table, and a member of the JSON.
struct figure {
  std::string_view name;     ///< In JSON.
  std::string_view heading;  ///< In the table.
  figure_kind kind = figure_kind::now;
  std::string_view metric;  ///< Without "cordma_".
  /// The label `kind` of its samples, or `moves_data`; empty: all.
  std::string_view request{};
  std::string_view divisor{};  ///< The other counter of a ratio.
};

/// All figures, the most asked for first: a narrow terminal shows no more than fit.
inline constexpr std::array<figure, 21> all_figures{{
    {"sends_per_s", "SEND/s", figure_kind::rate, "requests_completed_total", "send"},
    {"writes_per_s", "WRITE/s", figure_kind::rate, "requests_completed_total", "write"},
    {"reads_per_s", "READ/s", figure_kind::rate, "requests_completed_total", "read"},
    {"atomics_per_s", "ATOM/s", figure_kind::rate, "requests_completed_total", "atomic"},
    {"receives_per_s", "RECV/s", figure_kind::rate, "requests_completed_total", "receive"},
    {"failed_per_s", "FAIL/s", figure_kind::rate, "requests_failed_total", moves_data},
    {"stalls_per_s", "STALL/s", figure_kind::rate, "send_queue_stalls_total"},
    {"credit_waits_per_s", "CREDIT/s", figure_kind::rate, "stream_credit_waits_total"},
    {"rnr_exceeded_per_s", "RNR/s", figure_kind::rate, "rnr_exceeded_total"},
    {"in_flight", "FLIGHT", figure_kind::now, "requests_in_flight", moves_data},
    {"connections", "CONN", figure_kind::now, "connections_open"},
    {"connections_lost", "LOST", figure_kind::now, "connections_lost_total"},
    {"leases_lent", "LENT", figure_kind::now, "leases_open"},
    {"leases_held", "HELD", figure_kind::now, "leases_held"},
    {"lent_bytes", "LENT-B", figure_kind::bytes, "leases_open_bytes"},
    {"registered_bytes", "MEM-B", figure_kind::bytes, "memory_registered_bytes"},
    {"registrations_per_s", "REG/s", figure_kind::rate, "memory_registrations_total"},
    {"executor_waits_per_s", "SLEEP/s", figure_kind::rate, "executor_waits_total"},
    {"wake_ups_per_s", "WAKE/s", figure_kind::rate, "completion_wake_ups_total"},
    {"completions_per_wake_up", "CQE/WAKE", figure_kind::ratio, "completions_total", "",
     "completion_wake_ups_total"},
    {"leases_expired", "LATE", figure_kind::now, "leases_expired_total"},
}};

using figure_values = std::array<std::optional<double>, all_figures.size()>;

/// The values that one page has for each figure. Those of several pages can be added.
struct readings {
  std::array<std::optional<double>, all_figures.size()> values;
  std::array<std::optional<double>, all_figures.size()> divisors;
};

readings read(const page& from);

/// Rises and gauges of several pages together.
class figure_sum {
 public:
  /// \param before  the readings of the same page, `length` earlier; null: there are none.
  /// A counter that has fallen is another program's, and gives no rate.
  void add(const readings* before, const readings& now, seconds length);
  [[nodiscard]] figure_values take() const;

 private:
  figure_values values_;
  figure_values divisors_;
};

}  // namespace top
