#include "collective_arguments.hpp"

#include "job.hpp"
#include "size.hpp"

#include <CLI/CLI.hpp>

#include <algorithm>

namespace perf {
namespace {

/// Each word is a size, or a sweep.
std::vector<std::uint64_t> parse_sizes(const std::vector<std::string>& words) {
  std::vector<std::uint64_t> all;
  for (const std::string& word : words) {
    const std::vector<std::uint64_t> some = parse_sweep("--sizes", word);
    all.insert(all.end(), some.begin(), some.end());
  }
  std::ranges::sort(all);
  all.erase(std::unique(all.begin(), all.end()), all.end());
  return all;
}

}  // namespace

collective_arguments::collective_arguments(CLI::App& app)
    : command_{app.add_subcommand(
          "collectives",
          "Operations of groups, on each rank of a launcher; or --collectives. The time is from "
          "the "
          "first rank's begin to the last one's end; between hosts, the longest of a rank")} {
  CLI::App& to = *command_;
  to.add_option("--ranks", options_.ranks, "Start so many ranks here, without a launcher: 2 to 64");
  to.add_option("--operation", operations_,
                "barrier, broadcast, scatter, gather, all_gather, reduce, all_reduce, "
                "reduce_scatter, all_to_all, scan; default all")
      ->delimiter(',');
  to.add_option("--sizes", sizes_, "Bytes, 4 to 1G, and sweeps as 8:64K; default 8,1K,32K,1M")
      ->delimiter(',');
  to.add_option("--algorithm", options_.algorithms, "Default: what the table chooses")
      ->delimiter(',');
  to.add_flag("--tune", options_.is_tuning,
              "Measure all algorithms, and print a table of the fastest; sizes 64:4M");
  to.add_option("--mode", mode_, "event (default), busy or adaptive");
  to.add_option("--duration", duration_, "Seconds of each line; default 0.2");
  to.add_option("--memory", memory_, "That an operation may take on a rank; default 2G");
  to.add_option("--device", options_.device, "Default: the first that is active, else soft0");
  to.add_option("--json", json_, "Write the results to this file, too; without one, print no table")
      ->expected(0, 1);
}

bool collective_arguments::is_parsed() const { return command_->parsed(); }

collectives_options collective_arguments::read() const {
  collectives_options o = options_;
  for (const std::string& name : operations_) o.operations.push_back(parse_collective(name));
  const std::vector<std::string> defaults = o.is_tuning
                                                ? std::vector<std::string>{"64:4M"}
                                                : std::vector<std::string>{"8", "1K", "32K", "1M"};
  o.sizes = parse_sizes(sizes_.empty() ? defaults : sizes_);
  o.mode = parse_mode(mode_);
  o.duration = parse_seconds(duration_);
  o.memory_bytes_max = parse_size("--memory", memory_);
  o.prints_json = command_->count("--json") != 0 && json_.empty();
  o.json_file = json_;
  check(o);
  return o;
}

}  // namespace perf
