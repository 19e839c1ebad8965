#include "csv.hpp"

#include "text.hpp"

namespace perf {
namespace {

/// A text of CSV (RFC 4180): in quotes if it has to be.
std::string csv_text(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"') out += '"';
    out += c;
  }
  return out + '"';
}

constexpr const char* csv_job_columns =
    "op,size_bytes,depth,connections,threads,mode,asked_per_second,gaps,bidirectional";

void append_csv_job(std::string& out, const job& j) {
  append(out, "%s,%ju,%u,%u,%u,%s,", to_string(j.op), std::uintmax_t{j.size_bytes}, j.depth,
         j.connections, j.threads, to_string(j.mode));
  if (j.rate != 0) append(out, "%.3f", j.rate);
  append(out, ",%s,%d", j.rate != 0 ? to_string(j.gaps) : "", int(j.is_bidirectional));
}

void append_if(std::string& out, bool is_there, double value) {
  out += ',';
  if (is_there) append(out, "%.6f", value);
}

void append_measured(std::string& out, const result& r) {
  const histogram& h = r.ours.latencies;
  append(out, ",%ju,%.6f,%.1f,%.6f", std::uintmax_t{r.operations()}, r.ours.seconds, r.per_second(),
         r.gigabytes_per_second());
  append(out, ",%.3f,%.3f,%.3f,%.3f,%.3f,%.3f", us(h.at(0.5)), us(h.at(0.9)), us(h.at(0.99)),
         us(h.at(0.999)), us(h.max()), us(h.mean()));
  const counters& c = r.ours.cost;
  append_if(out, true, r.per_operation(c.wake_ups));
  append_if(out, true, r.per_operation(c.arms));
  append_if(out, true, r.per_operation(c.system_calls));
  append_if(out, counts_allocations(), r.per_operation(c.allocations));
  append_if(out, true, r.per_operation(std::uint64_t(c.cpu.count())) / 1e3);
  append_if(out, r.server_cpu.has_value(), us(r.server_cpu.value_or(std::chrono::nanoseconds{0})));
  const bool is_open = r.what.rate != 0;
  append_if(out, is_open, us(r.ours.lateness.at(0.99)));
  append_if(out, is_open, us(r.ours.lateness.max()));
  append_if(out, is_open, double(r.ours.missed));
  append_if(out, r.baseline.has_value(), r.baseline ? r.baseline->ratio() : 0);
  append_if(out, r.reverse.has_value(), r.reverse ? r.reverse->per_second() : 0);
}

}  // namespace

std::string csv(const run_facts& facts, const std::vector<result>& results) {
  std::string out =
      std::string{"date,version,host,kernel,server,device,"} + csv_job_columns +
      ",operations,seconds,operations_per_second,gigabytes_per_second,p50_us,p90_us,"
      "p99_us,p99_9_us,max_us,mean_us,wake_ups,arms,system_calls,allocations,cpu_us,"
      "server_cpu_us,late_p99_us,late_max_us,missed,ratio,server_operations_per_second\n";
  for (const result& r : results) {
    for (const std::string* const text :
         {&facts.date, &facts.version, &facts.host, &facts.kernel, &facts.server, &facts.device})
      out += csv_text(*text) + ',';
    append_csv_job(out, r.what);
    append_measured(out, r);
    out += '\n';
  }
  return out;
}

std::string histogram_csv(const std::vector<result>& results) {
  std::string out = std::string{csv_job_columns} + ",from_ns,to_ns,count,part\n";
  for (const result& r : results) {
    std::string what;
    append_csv_job(what, r.what);
    std::uint64_t seen = 0;
    r.ours.latencies.each_bucket([&](std::uint64_t low, std::uint64_t top, std::uint64_t count) {
      seen += count;
      out += what;
      append(out, ",%ju,%ju,%ju,%.9f\n", std::uintmax_t{low}, std::uintmax_t{top},
             std::uintmax_t{count}, double(seen) / double(r.operations()));
    });
  }
  return out;
}

}  // namespace perf
