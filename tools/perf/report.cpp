#include "report.hpp"

#include "size.hpp"
#include "text.hpp"

#include <algorithm>

namespace perf {
namespace {

double us(std::chrono::nanoseconds t) { return double(t.count()) / 1e3; }

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

void append_result(std::string& out, const result& r) {
  const counters& c = r.ours.cost;
  append(out, "    {\n      \"op\": \"%s\", \"size_bytes\": %ju, \"depth\": %u, ",
         to_string(r.what.op), std::uintmax_t{r.what.size_bytes}, r.what.depth);
  append(out, "\"connections\": %u, \"threads\": %u, \"mode\": \"%s\",\n", r.what.connections,
         r.what.threads, to_string(r.what.mode));
  append(out, "      \"operations\": %ju, \"seconds\": %.6f, ", std::uintmax_t{r.operations()},
         r.ours.seconds);
  append(out, "\"operations_per_second\": %.1f, \"gigabytes_per_second\": %.6f,\n", r.per_second(),
         r.gigabytes_per_second());
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

}  // namespace

std::string speeds_head() {
  std::string out;
  append(out, "%s %11s %8s %8s %8s %8s %8s %9s\n", job_columns, "ops/s", "GB/s", "p50 us", "p90 us",
         "p99 us", "p99.9", "max us");
  return out;
}

std::string speeds_row(const result& r) {
  std::string out;
  const histogram& h = r.ours.latencies;
  append_job(out, r.what);
  append(out, " %11.0f %8.3f %8.2f %8.2f %8.2f %8.2f %9.1f\n", r.per_second(),
         r.gigabytes_per_second(), us(h.at(0.5)), us(h.at(0.9)), us(h.at(0.99)), us(h.at(0.999)),
         us(h.max()));
  return out;
}

std::string other_tables(const std::vector<result>& results) {
  std::string out;
  append_costs(out, results);
  for (const result& r : results) {
    if (!r.baseline) continue;
    append_comparisons(out, results);
    break;
  }
  return out;
}

std::string json(std::string_view device, const std::vector<result>& results) {
  std::string out = "{\n  \"device\": " + json_string(device) + ",\n  \"results\": [";
  const char* separator = "\n";
  for (const result& r : results) {
    out += separator;
    append_result(out, r);
    separator = ",\n";
  }
  return out + "\n  ]\n}\n";
}

}  // namespace perf
