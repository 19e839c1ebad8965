#include "collective_report.hpp"

#include "job.hpp"
#include "size.hpp"
#include "text.hpp"

#include <cordma/group/joining.hpp>

namespace perf {
namespace {

const char* name_of(const collective_case& c) { return cordma::detail::to_string(c.kind); }

std::string range_text(const tuned_range& r) {
  return (r.first_bytes == 0 ? "" : size_text(r.first_bytes)) + ".." +
         (r.last_bytes == 0 ? "" : size_text(r.last_bytes));
}

bool fits_options(const std::string& text) {
  return decltype(cordma::group_options::algorithms){text}.view() == text;
}

void append_tuned(std::string& out, const tuned_table& t) {
  append(out, ",\n  \"tuned\": {\n    \"algorithms\": ");
  out += json_string(t.text) + ",\n    \"ranges\": [";
  const char* separator = "\n";
  for (const tuned_range& r : t.ranges) {
    append(out, "%s      {\"operation\": \"%s\", \"algorithm\": \"%s\", ", separator,
           cordma::detail::to_string(r.by->kind), r.by->name);
    append(out, "\"first_bytes\": %ju, \"last_bytes\": %ju, \"gain\": %.3f}",
           std::uintmax_t{r.first_bytes}, std::uintmax_t{r.last_bytes}, r.gain);
    separator = ",\n";
  }
  out += t.ranges.empty() ? "]\n  }" : "\n    ]\n  }";
}

}  // namespace

std::string title(const collective_case& what) {
  return std::string{name_of(what)} + ", " + size_text(what.size_bytes) + " on " +
         std::to_string(what.ranks) + " ranks";
}

std::string collectives_head(bool is_one_host) {
  std::string out;
  if (!is_one_host)
    out +=
        "several hosts, no common clock: broadcast, scatter, gather, reduce and scan count from "
        "each rank's own begin\n";
  append(out, "%-14s %8s %12s %9s  %s\n", "operation", "bytes", "us", "GB/s", "algorithm");
  return out;
}

std::string collective_rows(const collective_result& r) {
  std::string out;
  for (const algorithm_time& t : r.times) {
    append(out, "%-14s %8s %12.2f ", name_of(r.what), size_text(r.what.size_bytes).c_str(), t.us);
    if (r.what.moved_bytes() == 0) {
      append(out, "%9s", "-");
    } else {
      append(out, "%9.3f", r.gigabytes_per_second(t));
    }
    const bool is_marked = r.times.size() > 1 && t.by == r.builtin;
    append(out, "  %s%s\n", t.by->name, is_marked ? " (built-in)" : "");
  }
  return out;
}

std::string tuned_rows(const tuned_table& t, const std::vector<collective_result>& results) {
  const unsigned ranks = results.empty() ? 0 : results.front().what.ranks;
  std::string out;
  if (t.ranges.empty()) {
    append(out, "\nThe built-in table is as fast as any, on %u ranks.\n", ranks);
    return out;
  }
  append(out, "\n%-14s %-13s %-19s %5s\n", "operation", "bytes", "faster", "gain");
  for (const tuned_range& r : t.ranges)
    append(out, "%-14s %-13s %-19s %5.2f\n", cordma::detail::to_string(r.by->kind),
           range_text(r).c_str(), r.by->name, r.gain);
  append(out, "\nFor %s, of %u ranks:\n",
         fits_options(t.text) ? "group_options::algorithms, or CORDMA_COLLECTIVES"
                              : "CORDMA_COLLECTIVES (group_options::algorithms is too short)",
         ranks);
  return out + t.text + '\n';
}

std::string collectives_json(const collectives_origin& of,
                             const std::vector<collective_result>& results,
                             const std::optional<tuned_table>& tuned) {
  std::string out = "{\n  \"device\": " + json_string(of.device);
  append(out, ",\n  \"mode\": \"%s\", \"ranks\": %u,\n  \"results\": [", to_string(of.mode),
         of.ranks);
  const char* separator = "\n";
  for (const collective_result& r : results) {
    for (const algorithm_time& t : r.times) {
      append(out, "%s    {\"operation\": \"%s\", \"size_bytes\": %ju, ", separator, name_of(r.what),
             std::uintmax_t{r.what.size_bytes});
      append(out, "\"algorithm\": \"%s\", \"is_built_in\": %s,\n", t.by->name,
             t.by == r.builtin ? "true" : "false");
      append(out, "     \"microseconds\": %.3f, \"p25\": %.3f, \"p75\": %.3f, ", t.us, t.us_low,
             t.us_high);
      append(out, "\"moved_bytes\": %ju, \"gigabytes_per_second\": ",
             std::uintmax_t{r.what.moved_bytes()});
      if (r.what.moved_bytes() == 0) {
        out += "null";
      } else {
        append(out, "%.6f", r.gigabytes_per_second(t));
      }
      append(out, ", \"operations\": %ju}", std::uintmax_t{t.operations});
      separator = ",\n";
    }
  }
  out += "\n  ]";
  if (tuned) append_tuned(out, *tuned);
  return out + "\n}\n";
}

}  // namespace perf
