#include "bench.hpp"

#include "stack_offsets.hpp"

#include <support/allocations.hpp>

#include <linux/perf_event.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <valgrind/callgrind.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <stdexcept>

namespace bench {
namespace {

constexpr int rounds = 129;  // rounds of each side; odd, so that the median is one of them

struct entry {
  const char* name;
  const char* question;
  where runs;
  void (*run)(recorder&);
};
std::vector<entry>& entries() {
  static std::vector<entry> all;
  return all;
}

/// Instructions of this thread in user space; not counted where the machine has no counter.
class instruction_counter {
 public:
  instruction_counter() {
    perf_event_attr attributes{};
    attributes.size = sizeof attributes;
    attributes.type = PERF_TYPE_HARDWARE;
    attributes.config = PERF_COUNT_HW_INSTRUCTIONS;
    attributes.exclude_kernel = 1;
    attributes.exclude_hv = 1;
    fd_ = int(::syscall(SYS_perf_event_open, &attributes, 0, -1, -1, 0));
  }
  instruction_counter(const instruction_counter&) = delete;
  ~instruction_counter() {
    if (fd_ >= 0) ::close(fd_);
  }
  [[nodiscard]] bool counts() const { return fd_ >= 0 && read() > 0; }
  [[nodiscard]] std::uint64_t read() const {
    std::uint64_t value = 0;
    return fd_ >= 0 && ::read(fd_, &value, sizeof value) == sizeof value ? value : 0;
  }

 private:
  int fd_;
};

double ns_per_op(const work& w, std::uint64_t n) {
  const auto start = std::chrono::steady_clock::now();
  w(n);
  const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - start;
  return took.count() / double(n);
}

std::uint64_t ops_per_round(const work& w, std::chrono::nanoseconds round_length) {
  std::uint64_t n = 1;
  w(n);  // Warm.
  for (;;) {
    // The quickest: what others took from one would make all rounds too short.
    const double ns = std::min({ns_per_op(w, n), ns_per_op(w, n), ns_per_op(w, n)});
    const double wanted = double(round_length.count()) / ns;
    if (wanted < 2.0 * double(n)) return n;
    n = std::min(std::uint64_t(wanted), n * 10);
  }
}

/// Instructions of this thread, by valgrind, which runs this program and writes to a file. The
/// figure is the same on every machine, whatever else that does.
class callgrind_counter {
 public:
  explicit callgrind_counter(std::string file) : file_{std::move(file)} {}
  /// Gives the instructions of one operation among many: the cost of `n` more, divided by `n`.
  double per_op(const work& w) {
    constexpr std::uint64_t n = 1000;
    w(n);  // Warm.
    const double once = all_of(w, n);
    return (all_of(w, 2 * n) - once) / double(n);
  }

 private:
  double all_of(const work& w, std::uint64_t n) {
    CALLGRIND_ZERO_STATS;
    CALLGRIND_TOGGLE_COLLECT;
    w(n);
    CALLGRIND_TOGGLE_COLLECT;
    CALLGRIND_DUMP_STATS;
    const std::string part = file_ + "." + std::to_string(++dumps_);
    std::ifstream in{part};
    for (std::string line; std::getline(in, line);)
      if (line.starts_with("totals: ")) return std::stod(line.substr(8));
    throw std::runtime_error{"callgrind wrote no totals to " + part};
  }
  std::string file_;
  int dumps_ = 0;
};
std::optional<callgrind_counter> callgrind;

struct side {
  side(const work& w, std::chrono::nanoseconds round_length)
      : does{w}, n{ops_per_round(w, round_length)} {}
  const work& does;
  std::uint64_t n;
  std::vector<double> ns;
  double allocations = 0;
  double instructions = 0;

  void round(const instruction_counter& counter) {
    const std::uint64_t allocated = support::allocation_count();
    const std::uint64_t executed = counter.read();
    const double took = ns_per_op(does, n);
    instructions = double(counter.read() - executed) / double(n);
    allocations =
        std::max(allocations, double(support::allocation_count() - allocated) / double(n));
    ns.push_back(took);
  }
  double quantile(double q) {
    std::sort(ns.begin(), ns.end());
    return ns[std::size_t(q * double(ns.size() - 1))];
  }
};

void print(const figure& f) {
  std::printf("  %-34s %-16s %12.2f %-7s", f.which.c_str(), f.metric.c_str(), f.value,
              f.unit.c_str());
  if (f.baseline != 0) std::printf(" raw %12.2f  ratio %.3f", f.baseline, f.value / f.baseline);
  std::printf("\n");
  std::fflush(stdout);
}

void write_json(const std::string& path, const std::vector<figure>& figures) {
  std::ofstream out{path};
  out << "[";
  const char* separator = "\n";
  for (const figure& f : figures) {
    out << separator << R"(  {"bench": ")" << f.bench << R"(", "case": ")" << f.which
        << R"(", "metric": ")" << f.metric << R"(", "unit": ")" << f.unit << R"(", "value": )"
        << f.value;
    if (f.baseline != 0) {
      out << R"(, "baseline": )" << f.baseline << R"(, "ratio": )" << f.value / f.baseline;
    } else {
      out << R"(, "baseline": null, "ratio": null)";
    }
    out << "}";
    separator = ",\n";
  }
  out << "\n]\n";
  if (!out) throw std::runtime_error{"cannot write " + path};
}

}  // namespace

registration::registration(const char* name, const char* question, where runs,
                           void (*run)(recorder&)) {
  entries().push_back({name, question, runs, run});
}

void recorder::compare(std::string_view which, const work& baseline, const work& ours) {
  record(which, &baseline, ours);
}

void recorder::measure(std::string_view which, const work& ours) { record(which, nullptr, ours); }

void recorder::record(std::string_view which, const work* baseline, const work& ours) {
  if (callgrind) {
    const double raw = baseline != nullptr ? callgrind->per_op(*baseline) : 0;
    return count(which, "instructions", "1/op", callgrind->per_op(ours), raw);
  }
  const instruction_counter counter;
  side us{ours, round_length_};
  std::vector<side> raw;
  if (baseline != nullptr) raw.emplace_back(*baseline, round_length_);
  for (int i = 0; i < rounds; ++i) {
    at_offset(std::uint64_t(i), [&] {
      for (side& r : raw) r.round(counter);
      us.round(counter);
    });
  }
  const auto raw_quantile = [&](double q) { return raw.empty() ? 0.0 : raw[0].quantile(q); };
  count(which, "time p50", "ns/op", us.quantile(0.5), raw_quantile(0.5));
  count(which, "time p99", "ns/op", us.quantile(0.99), raw_quantile(0.99));
  if (counter.counts()) {
    count(which, "instructions", "1/op", us.instructions, raw.empty() ? 0 : raw[0].instructions);
  }
  count(which, "allocations", "1/op", us.allocations);
  allocated_ = allocated_ || us.allocations > allowed_;
}

void recorder::count(std::string_view which, std::string_view metric, std::string_view unit,
                     double value, double baseline) {
  figures_.push_back(
      {name_, std::string{which}, std::string{metric}, std::string{unit}, value, baseline});
  print(figures_.back());
}

}  // namespace bench

int main(int argc, char** argv) {
  CLI::App app{"Benchmarks of cordma, beside the raw loop that does the same work"};
  std::string filter;
  std::string json;
  app.add_option("NAME", filter, "Run only the benchmarks whose name contains this");
  app.add_option("--json", json, "Also write an array of figures to this file");
  bool asks_for_device = false;
  app.add_flag("--needs-device", asks_for_device,
               "Run nothing; succeed when there are benchmarks that need an RDMA device");
  std::string callgrind_file;
  app.add_option("--callgrind", callgrind_file,
                 "Count instructions rather than time. Under `valgrind --tool=callgrind "
                 "--collect-atstart=no --callgrind-out-file=FILE`, with the same FILE");
  CLI11_PARSE(app, argc, argv);
  if (!callgrind_file.empty()) bench::callgrind.emplace(callgrind_file);
  if (asks_for_device) {
    return std::ranges::any_of(
               bench::entries(),
               [](const bench::entry& e) { return e.runs == bench::where::on_device; })
               ? 0
               : 1;
  }

  std::vector<bench::figure> figures;
  bool failed = false;
  for (const bench::entry& e : bench::entries()) {
    if (std::string_view{e.name}.find(filter) == std::string_view::npos) continue;
    std::printf("%s: %s\n", e.name, e.question);
    bench::recorder recorder{e.name};
    try {
      e.run(recorder);
    } catch (const std::exception& error) {
      std::printf("  failed: %s\n", error.what());
      failed = true;
    }
    if (recorder.allocated()) {
      std::printf("  failed: it allocates, once warm\n");
      failed = true;
    }
    figures.insert(figures.end(), recorder.figures().begin(), recorder.figures().end());
  }
  if (!json.empty()) bench::write_json(json, figures);
  return failed ? 1 : 0;
}
