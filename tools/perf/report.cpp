#include "report.hpp"

#include "size.hpp"
#include "text.hpp"

#include <algorithm>

namespace perf {
namespace {

void append_job(std::string& out, const job& j) {
  append(out, "%-12s %5s %5u %4u %3u", to_string(j.op), size_text(j.size_bytes).c_str(), j.depth,
         j.connections, j.threads);
}
constexpr const char* job_columns = "op            size depth conn thr";

void append_costs(std::string& out, const std::vector<result>& results) {
  append(out, "\n%s %8s %8s %8s %9s %7s %8s %8s\n", job_columns, "wakes/op", "arms/op", "sys/op",
         "done/wake", "alloc", "cpu us", "srv us");
  for (const result& r : results) {
    const counters& c = r.ours.cost;
    append_job(out, r.what);
    append(out, " %8.4f %8.4f %8.4f", r.per_operation(c.wake_ups), r.per_operation(c.arms),
           r.per_operation(c.system_calls));
    if (c.wake_ups == 0) {
      append(out, " %9s", "-");
    } else {
      append(out, " %9.2f", double(c.completions) / double(c.wake_ups));
    }
    if (counts_allocations()) {
      append(out, " %7.4f", r.per_operation(c.allocations));
    } else {
      append(out, " %7s", "-");
    }
    append(out, " %8.2f", r.per_operation(std::uint64_t(c.cpu.count())) / 1e3);
    if (r.server_cpu) {
      append(out, " %8.2f\n", us(*r.server_cpu));
    } else {
      append(out, " %8s\n", "-");
    }
  }
}

void append_open_loops(std::string& out, const std::vector<result>& results) {
  append(out, "\n%s %11s %11s %11s %9s %9s %9s %8s\n", job_columns, "asked/s", "ops/s", "gaps",
         "late p50", "late p99", "late max", "missed");
  for (const result& r : results) {
    if (r.what.rate == 0) continue;
    const histogram& late = r.ours.lateness;
    append_job(out, r.what);
    append(out, " %11.1f %11.1f %11s %9.2f %9.2f %9.1f %8ju\n", r.what.rate, r.per_second(),
           to_string(r.what.gaps), us(late.at(0.5)), us(late.at(0.99)), us(late.max()),
           std::uintmax_t{r.ours.missed});
  }
}

void append_both_directions(std::string& out, const std::vector<result>& results) {
  append(out, "\n%s %11s %11s %11s %8s %9s %9s\n", job_columns, "ops/s", "server's", "both", "GB/s",
         "srv p50", "srv p99");
  for (const result& r : results) {
    if (!r.reverse) continue;
    append_job(out, r.what);
    append(out, " %11.0f %11.0f %11.0f %8.3f %9.2f %9.2f\n", r.per_second(),
           r.reverse->per_second(), r.per_second_of_both(),
           r.per_second_of_both() * double(r.what.size_bytes) / 1e9, us(r.reverse->p50),
           us(r.reverse->p99));
  }
}

void append_comparisons(std::string& out, const std::vector<result>& results) {
  append(out, "\n%s %11s %11s %7s %15s %7s\n", job_columns, "ours ns/op", "raw ns/op", "ratio",
         "quartiles", "rounds");
  for (const result& r : results) {
    if (!r.baseline) continue;
    append_job(out, r.what);
    append(out, " %11.1f %11.1f %7.3f %7.3f-%7.3f %7zu\n", r.baseline->ours_ns, r.baseline->raw_ns,
           r.baseline->ratio(), r.baseline->ratio_low, r.baseline->ratio_high, r.baseline->rounds);
  }
}

void append_latency(std::string& out, const char* key, const histogram& h) {
  append(
      out,
      "      \"%s\": {\"p50\": %.3f, \"p90\": %.3f, \"p99\": %.3f, \"p99_9\": %.3f, \"max\": %.3f, "
      "\"mean\": %.3f}",
      key, us(h.at(0.5)), us(h.at(0.9)), us(h.at(0.99)), us(h.at(0.999)), us(h.max()),
      us(h.mean()));
}

void append_optional(std::string& out, const char* key, bool is_there, double value) {
  if (is_there) {
    append(out, ", \"%s\": %.6f", key, value);
  } else {
    append(out, ", \"%s\": null", key);
  }
}

void append_set(std::string& out, const char* key, const std::optional<std::uint32_t>& value) {
  if (value) {
    append(out, "\"%s\": %u", key, *value);
  } else {
    append(out, "\"%s\": null", key);
  }
}

void append_path(std::string& out, const path_options& path) {
  out += "      \"path\": {";
  append_set(out, "sl", path.service_level);
  append_set(out += ", ", "tclass", path.traffic_class);
  append_set(out += ", ", "mtu", path.mtu_bytes);
  append_set(out += ", ", "inline", path.inline_bytes);
  append_set(out += ", ", "retries", path.retries);
  append_set(out += ", ", "rnr_retries", path.rnr_retries);
  out += "},\n";
}

void append_open_loop(std::string& out, const result& r) {
  if (r.what.rate == 0) {
    out += "      \"open_loop\": null,\n";
    return;
  }
  append(out, "      \"open_loop\": {\"asked_per_second\": %.3f, \"achieved_per_second\": %.3f, ",
         r.what.rate, r.per_second());
  append(out, "\"gaps\": \"%s\", \"missed\": %ju,\n", to_string(r.what.gaps),
         std::uintmax_t{r.ours.missed});
  append_latency(out, "lateness_us", r.ours.lateness);
  out += "},\n";
}

void append_reverse(std::string& out, const result& r) {
  if (!r.reverse) {
    out += "      \"bidirectional\": null,\n";
    return;
  }
  const reverse_result& back = *r.reverse;
  append(out, "      \"bidirectional\": {\"server_operations\": %ju, \"server_seconds\": %.6f, ",
         std::uintmax_t{back.operations}, back.seconds);
  append(out, "\"server_per_second\": %.1f, \"both_per_second\": %.1f, ", back.per_second(),
         r.per_second_of_both());
  append(out, "\"server_p50_us\": %.3f, \"server_p99_us\": %.3f, \"server_max_us\": %.3f},\n",
         us(back.p50), us(back.p99), us(back.max));
}

void append_result(std::string& out, const result& r) {
  const counters& c = r.ours.cost;
  append(out, "    {\n      \"op\": \"%s\", \"size_bytes\": %ju, \"depth\": %u, ",
         to_string(r.what.op), std::uintmax_t{r.what.size_bytes}, r.what.depth);
  append(out, "\"connections\": %u, \"threads\": %u, \"mode\": \"%s\",\n", r.what.connections,
         r.what.threads, to_string(r.what.mode));
  append(out, "      \"operations\": %ju, \"seconds\": %.6f, ", std::uintmax_t{r.operations()},
         r.ours.seconds);
  append(out, "\"warm_up_operations\": %ju, ", std::uintmax_t{r.ours.warm_up_operations});
  append(out, "\"operations_per_second\": %.1f,\n      \"gigabytes_per_second\": %.6f, ",
         r.per_second(), r.gigabytes_per_second());
  append(out, "\"gigabits_per_second\": %.6f,\n", r.gigabits_per_second());
  append_path(out, r.what.path);
  append_open_loop(out, r);
  append_reverse(out, r);
  append_latency(out, "latency_us", r.ours.latencies);
  append(out, ",\n      \"per_operation\": {\"wake_ups\": %.6f, \"arms\": %.6f, ",
         r.per_operation(c.wake_ups), r.per_operation(c.arms));
  append(out, "\"system_calls\": %.6f, \"cpu_us\": %.6f", r.per_operation(c.system_calls),
         r.per_operation(std::uint64_t(c.cpu.count())) / 1e3);
  append_optional(out, "allocations", counts_allocations(), r.per_operation(c.allocations));
  append_optional(out, "server_cpu_us", r.server_cpu.has_value(),
                  us(r.server_cpu.value_or(std::chrono::nanoseconds{0})));
  out += '}';
  append_optional(out, "completions_per_wake_up", c.wake_ups != 0,
                  double(c.completions) / double(std::max<std::uint64_t>(c.wake_ups, 1)));
  if (!r.baseline) {
    out += ",\n      \"baseline\": null\n    }";
    return;
  }
  const comparison& b = *r.baseline;
  append(out, ",\n      \"baseline\": {\"ours_ns\": %.3f, \"raw_ns\": %.3f, \"ratio\": %.4f, ",
         b.ours_ns, b.raw_ns, b.ratio());
  append(out, "\"ratio_p25\": %.4f, \"ratio_p75\": %.4f, \"rounds\": %zu},\n", b.ratio_low,
         b.ratio_high, b.rounds);
  append_latency(out, "baseline_latency_us", b.raw_latencies);
  out += "\n    }";
}

const char* name_of(speed_unit unit) { return unit == speed_unit::gigabits ? "Gbit/s" : "GB/s"; }

void append_speed(std::string& out, double per_second, double gigabytes, const histogram& h,
                  speed_unit unit) {
  append(out, " %11.0f %8.3f %8.2f %8.2f %8.2f %8.2f %9.1f\n", per_second,
         gigabytes * (unit == speed_unit::gigabits ? 8 : 1), us(h.at(0.5)), us(h.at(0.9)),
         us(h.at(0.99)), us(h.at(0.999)), us(h.max()));
}

}  // namespace

std::string speeds_head(speed_unit unit) {
  std::string out = job_columns;
  append(out, " %11s %8s %8s %8s %8s %8s %9s\n", "ops/s", name_of(unit), "p50 us", "p90 us",
         "p99 us", "p99.9", "max us");
  return out;
}

std::string speeds_row(const result& r, speed_unit unit) {
  std::string out;
  append_job(out, r.what);
  append_speed(out, r.per_second(), r.gigabytes_per_second(), r.ours.latencies, unit);
  return out;
}

std::string other_tables(const std::vector<result>& results) {
  std::string out;
  append_costs(out, results);
  const auto has_rate = [](const result& r) { return r.what.rate != 0; };
  const auto has_baseline = [](const result& r) { return r.baseline.has_value(); };
  if (std::ranges::any_of(results, has_rate)) append_open_loops(out, results);
  const auto has_reverse = [](const result& r) { return r.reverse.has_value(); };
  if (std::ranges::any_of(results, has_reverse)) append_both_directions(out, results);
  if (std::ranges::any_of(results, has_baseline)) append_comparisons(out, results);
  return out;
}

std::string period_head(speed_unit unit) {
  std::string out;
  append(out, "%9s %11s %8s %8s %8s %8s %8s %9s\n", "time s", "ops/s", name_of(unit), "p50 us",
         "p90 us", "p99 us", "p99.9", "max us");
  return out;
}

std::string period_row(const job& what, const histogram& latencies, double at_seconds,
                       double length_seconds, speed_unit unit) {
  std::string out;
  append(out, "%9.1f", at_seconds);
  const double per_second = length_seconds > 0 ? double(latencies.count()) / length_seconds : 0;
  append_speed(out, per_second, per_second * double(what.size_bytes) / 1e9, latencies, unit);
  return out;
}

std::string json(const run_facts& facts, const std::vector<result>& results) {
  std::string out = "{\n  \"version\": " + json_string(facts.version);
  out += ",\n  \"date\": " + json_string(facts.date);
  out += ",\n  \"host\": " + json_string(facts.host);
  out += ",\n  \"kernel\": " + json_string(facts.kernel);
  out += ",\n  \"server\": " + json_string(facts.server);
  out += ",\n  \"device\": " + json_string(facts.device) + ",\n  \"results\": [";
  const char* separator = "\n";
  for (const result& r : results) {
    out += separator;
    append_result(out, r);
    separator = ",\n";
  }
  return out + "\n  ]\n}\n";
}

}  // namespace perf
