#include "job_arguments.hpp"

#include "compare.hpp"
#include "cpu_list.hpp"
#include "size.hpp"

#include <CLI/CLI.hpp>

#include <limits>
#include <stdexcept>

namespace perf {
namespace {

constexpr std::uint32_t gid_index_max = 255;
constexpr const char* open_depth = "64";

std::uint32_t narrow(const char* name, std::uint64_t value, std::uint32_t most) {
  if (value <= most) return std::uint32_t(value);
  throw std::invalid_argument{std::string{name} + ' ' + size_text(value) + ": it goes up to " +
                              size_text(most)};
}

void check_endless(const job& j, std::size_t jobs) {
  if (!j.is_endless || jobs == 1) return;
  throw std::invalid_argument{"--forever: the first of " + std::to_string(jobs) +
                              " lines has no end; name one --size, --depth and --rate, no --plot"};
}

void add_load_options(CLI::App& to, std::string& warm_up, std::string& rate, std::string& gaps) {
  to.add_option("--warm-up", warm_up,
                "Seconds that do not count; default 1000 operations a thread, at most 0.2 s");
  to.add_option("--rate", rate,
                "Open loop: start so many a second, in all, or a sweep as 1k:64k; the latency "
                "counts from the time at which an operation is due");
  to.add_option("--gaps", gaps, "Of --rate: fixed (default) or exponential");
}

void add_path_options(CLI::App& to, path_options& path) {
  to.add_option("--sl", path.service_level, "Service level, 0 to 15");
  to.add_option("--tclass", path.traffic_class, "Traffic class, 0 to 255");
  to.add_option("--mtu", path.mtu_bytes, "Path MTU, 256 to 4096; default: the ports'");
  to.add_option("--inline", path.inline_bytes, "Send so many bytes inline; default 64");
  to.add_option("--retries", path.retries, "Of the transport, 0 to 7; default 6");
  to.add_option("--rnr-retries", path.rnr_retries, "Without a receive, 0 to 7; default 6");
}

}  // namespace

void side_arguments::add_to(CLI::App& to) {
  to.add_option("--device", device, "Default: the first that is active, else soft0");
  to.add_option("--ib-port", port, "Port of the device; default: the first that is active");
  to.add_option("--gid-index", gid_index, "Row of the port's GID table; default: cordma chooses");
  to.add_option("--pin", pin, "CPUs of the threads, one each, as 0,2,4-7; default any");
}

device_choice side_arguments::read_device() const {
  if (port) check_range("--ib-port", *port, 1, std::numeric_limits<std::uint8_t>::max());
  if (gid_index) check_range("--gid-index", *gid_index, 0, gid_index_max);
  return {.name = device, .port = std::uint8_t(port.value_or(0)), .gid_index = gid_index};
}

std::vector<unsigned> side_arguments::read_pin() const {
  return pin.empty() ? std::vector<unsigned>{} : parse_cpus(pin);
}

void job_arguments::add_to(CLI::App& to) {
  to.add_option("--op", op_,
                "write (default), read, send, write-imm, cas, faa, atomic-write, rpc, stream, ud, "
                "multicast, xrc; over UC: uc-write, uc-send, uc-write-imm");
  to.add_option("--size", size_, "Bytes, 8 to 1G, or a sweep as 8:64K; default 64");
  to.add_option("--depth", depth_,
                "Operations at once on a connection, 1 to 1024, or a sweep; default 1, with --rate "
                "64");
  to.add_option("--connections", connections_, "In all; default one a thread");
  to.add_option("--threads", threads_, "On each side, each with a runtime of its own; default 1");
  to.add_option("--mode", mode_, "event (default), busy or adaptive");
  to.add_option("--duration", duration_, "Seconds of each line; default 2");
  to.add_option("--operations", operations_, "As many instead, whatever time they take");
  to.add_flag("--forever", is_endless_, "Until SIGINT or SIGTERM, with a report each second");
  to.add_option("--report-every", report_every_, "Seconds; a row for what ended in each");
  to.add_flag("--bidirectional", is_bidirectional_, "The server does the same at the same time");
  add_load_options(to, warm_up_, rate_, gaps_);
  add_path_options(to, path_);
  to.add_option("--fail-above", fail_above_,
                "Exit with status 3 if a line has more, as p99=20us; also max, cpu, ratio, ...")
      ->delimiter(',');
  to.add_option("--fail-below", fail_below_,
                "The same if it has less, as ops/s=1M; also GB/s, Gbit/s, achieved, ...")
      ->delimiter(',');
}

/// A plot needs several loads.
std::string job_arguments::depth_text(bool has_plot) const {
  const bool has_rate = !rate_.empty();
  if (depth_.empty() && has_rate) return open_depth;
  if (!has_plot || has_rate) return depth_.empty() ? "1" : depth_;
  if (depth_.empty()) return "1:64";
  return depth_.find(':') == std::string::npos ? "1:" + depth_ : depth_;
}

job job_arguments::read_first(bool has_baseline) const {
  job j{.op = parse_operation(op_),
        .connections = connections_ != 0 ? connections_ : threads_,
        .threads = threads_,
        .operations = parse_size("--operations", operations_),
        .duration = parse_seconds(duration_),
        .is_endless = is_endless_,
        .path = path_,
        .is_bidirectional = is_bidirectional_};
  j.mode = parse_mode(mode_.empty() ? (has_baseline ? "busy" : "event") : mode_);
  if (!warm_up_.empty()) j.warm_up = parse_seconds(warm_up_, "--warm-up", true);
  if (!gaps_.empty()) {
    j.gaps = parse_gaps(gaps_);
    if (rate_.empty())
      throw std::invalid_argument{"--gaps " + gaps_ + ": they are of --rate; add it"};
  }
  return j;
}

std::vector<job> job_arguments::read(bool has_baseline, bool has_plot) const {
  job j = read_first(has_baseline);
  const std::string size = size_.empty() ? (is_atomic(j.op) ? "8" : "64") : size_;
  const auto depths = parse_sweep("--depth", depth_text(has_plot));
  const auto rates = rate_.empty() ? std::vector<double>{0} : parse_rates(rate_);
  std::vector<job> jobs;
  for (const std::uint64_t size_bytes : parse_sweep("--size", size)) {
    for (const std::uint64_t depth : depths) {
      for (const double rate : rates) {
        j.size_bytes = size_bytes;
        j.depth = narrow("--depth", depth, job::depth_max);
        j.rate = rate;
        check(j);
        if (has_baseline) check_comparable(j);
        jobs.push_back(j);
      }
    }
  }
  check_endless(j, jobs.size());
  return jobs;
}

std::vector<limit> job_arguments::read_limits(const std::vector<job>& jobs,
                                              bool has_baseline) const {
  std::vector<limit> all;
  all.reserve(fail_above_.size() + fail_below_.size());
  for (const std::string& text : fail_above_) all.push_back(parse_limit("--fail-above", text));
  for (const std::string& text : fail_below_) all.push_back(parse_limit("--fail-below", text));
  for (const limit& bound : all) check_measured(bound, jobs.front(), has_baseline);
  return all;
}

std::optional<std::chrono::milliseconds> job_arguments::read_report_every() const {
  if (!report_every_.empty()) return parse_seconds(report_every_, "--report-every");
  return is_endless_ ? std::optional{std::chrono::milliseconds{1000}} : std::nullopt;
}

}  // namespace perf
