#include "environment.hpp"

#include "base/environment_variable.hpp"
#include "io/host_calls.hpp"
#include "verbs/queue_pair_attributes.hpp"

#include <cordma/base/error.hpp>
#include <cordma/runtime/runtime.hpp>

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace cordma::detail {
namespace {

/// Gbit/s, as in the names of the values; those of the last two are missing in older headers.
constexpr std::array<named_value<ibv_rate>, 24> rates{
    {{"max", IBV_RATE_MAX},      {"2.5", IBV_RATE_2_5_GBPS}, {"5", IBV_RATE_5_GBPS},
     {"10", IBV_RATE_10_GBPS},   {"14", IBV_RATE_14_GBPS},   {"20", IBV_RATE_20_GBPS},
     {"25", IBV_RATE_25_GBPS},   {"28", IBV_RATE_28_GBPS},   {"30", IBV_RATE_30_GBPS},
     {"40", IBV_RATE_40_GBPS},   {"50", IBV_RATE_50_GBPS},   {"56", IBV_RATE_56_GBPS},
     {"60", IBV_RATE_60_GBPS},   {"80", IBV_RATE_80_GBPS},   {"100", IBV_RATE_100_GBPS},
     {"112", IBV_RATE_112_GBPS}, {"120", IBV_RATE_120_GBPS}, {"168", IBV_RATE_168_GBPS},
     {"200", IBV_RATE_200_GBPS}, {"300", IBV_RATE_300_GBPS}, {"400", IBV_RATE_400_GBPS},
     {"600", IBV_RATE_600_GBPS}, {"800", ibv_rate(23)},      {"1200", ibv_rate(24)}}};
constexpr const char* no_rate =
    "is none of 2.5, 5, 10, 14, 20, 25, 28, 30, 40, 50, 56, 60, 80, 100, 112, 120, 168, 200, 300, "
    "400, 600, 800, 1200 (Gbit/s) and max";

std::optional<ibv_rate> static_rate() {
  constexpr const char* variable = "CORDMA_STATIC_RATE";
  const std::optional<ibv_rate> rate = variable_choice(variable, rates, no_rate);
  if (rate && !verbs::is_rate(*rate))
    throw_wrong_variable(variable, variable_text(variable), "is no rate that libibverbs knows");
  return rate;
}

std::optional<ibv_mtu> mtu() {
  constexpr const char* variable = "CORDMA_MTU";
  const char* const text = variable_text(variable);
  if (text == nullptr) return std::nullopt;
  const std::optional<std::uint64_t> bytes = parse_number(text);
  for (const ibv_mtu one : {IBV_MTU_256, IBV_MTU_512, IBV_MTU_1024, IBV_MTU_2048, IBV_MTU_4096})
    if (bytes == verbs::bytes_of(one)) return one;
  throw_wrong_variable(variable, text, "is none of 256, 512, 1024, 2048 and 4096 (bytes)");
}

/// Returns the port that connections will use; none if it cannot be queried, or none is ACTIVE. A
/// port may become ACTIVE later.
std::optional<verbs::port_info> port_for(const verbs::context& ctx, std::uint8_t number) {
  try {
    return number != 0 ? ctx.query_port(number) : ctx.active_port();
  } catch (const error&) {
    return std::nullopt;
  }
}

constexpr std::array<named_value<event_log::level>, 4> log_levels{
    {{"error", event_log::level::error},
     {"warning", event_log::level::warning},
     {"info", event_log::level::info},
     {"debug", event_log::level::debug}}};

/// Writes a line in one call, so that lines of several threads do not mix.
void write_to_standard_error(const event_log::record& record) noexcept {
  constexpr std::string_view prefix = "cordma: ";
  std::array<char, 1024> line;
  prefix.copy(line.data(), prefix.size());
  const std::span<char> rest = std::span{line}.subspan(prefix.size());
  const std::size_t size = prefix.size() + record.write_to(rest.first(rest.size() - 1));
  line[size] = '\n';
  // A failure cannot be told to anybody.
  static_cast<void>(!::write(STDERR_FILENO, line.data(), size + 1));
}

/// Runtimes of one process whose metrics are served.
constexpr unsigned metrics_names_max = 4096;

template <class T>
void fill(std::optional<T>& option, const char* variable, std::uint64_t low, std::uint64_t high) {
  if (option) return;
  if (const auto value = variable_number(variable, low, high)) option = T(*value);
}

}  // namespace

verbs::context open_device(std::string_view option) {
  constexpr const char* variable = "CORDMA_DEVICE";
  const char* const text = option.empty() ? variable_text(variable) : nullptr;
  if (text == nullptr) return verbs::context{option};
  if (*text == '\0')
    throw_wrong_variable(variable, text, "is no device's name: unset the variable");
  try {
    return verbs::context{text};
  } catch (const error& e) {
    if (e.code() != make_error_code(errc::no_device)) throw;
    const std::string why = "is no device here: " + std::string{e.failure().detail.view()};
    throw_wrong_variable(variable, text, why);
  }
}

connection_options with_environment(connection_options o, const verbs::context& ctx) {
  if (o.port == 0)
    o.port = std::uint8_t(variable_number("CORDMA_PORT", 1, ctx.limits().port_count).value_or(0));
  const std::optional<verbs::port_info> port = port_for(ctx, o.port);
  const std::uint64_t gids = port ? port->gid_count : UINT32_MAX;
  const std::uint64_t pkeys = port ? port->pkey_count : UINT16_MAX;
  fill(o.gid_index, "CORDMA_GID_INDEX", 0, std::min<std::uint64_t>(gids - 1, UINT8_MAX));
  fill(o.pkey_index, "CORDMA_PKEY_INDEX", 0, std::min<std::uint64_t>(pkeys - 1, UINT16_MAX));
  fill(o.fabric.service_level, "CORDMA_SERVICE_LEVEL", 0, verbs::service_level_limit);
  fill(o.fabric.traffic_class, "CORDMA_TRAFFIC_CLASS", 0, UINT8_MAX);
  fill(o.fabric.flow_label, "CORDMA_FLOW_LABEL", 0, verbs::flow_label_limit);
  fill(o.fabric.hop_limit, "CORDMA_HOP_LIMIT", 1, UINT8_MAX);
  if (!o.fabric.mtu) o.fabric.mtu = mtu();
  if (!o.fabric.static_rate) o.fabric.static_rate = static_rate();
  return o;
}

event_log with_environment(event_log options) {
  if (options.hook) return options;
  const std::optional<event_log::level> level =
      variable_choice("CORDMA_LOG", log_levels, "is none of error, warning, info and debug");
  if (level) options = {.hook = write_to_standard_error, .least_urgent = *level};
  return options;
}

std::unique_ptr<metrics_server> serve_metrics(runtime& of) {
  constexpr std::array<named_value<bool>, 2> choices{{{"on", true}, {"off", false}}};
  const bool is_on =
      variable_choice("CORDMA_METRICS", choices, "is none of on and off").value_or(false);
  if (!is_on || !of.executor().reactor().host().has_threads()) return nullptr;
  const std::string name = "unix:@cordma-metrics-" + std::to_string(::getpid()) + '-';
  for (unsigned n = 0;; ++n) {
    try {
      return std::make_unique<metrics_server>(name + std::to_string(n), of);
    } catch (const error& e) {
      if (e.code() != std::error_code{EADDRINUSE, std::system_category()} ||
          n + 1 == metrics_names_max)
        throw;
    }
  }
}

}  // namespace cordma::detail
