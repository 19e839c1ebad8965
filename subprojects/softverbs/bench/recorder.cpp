#include "recorder.hpp"

#include "allocations.hpp"

#include <linux/perf_event.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <stdexcept>

namespace bench {
namespace {

constexpr int rounds = 31;  // rounds of each side; odd, so that the median is one of them
constexpr std::chrono::milliseconds round_length{5};

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
    fd_ = static_cast<int>(::syscall(SYS_perf_event_open, &attributes, 0, -1, -1, 0));
  }
  instruction_counter(const instruction_counter&) = delete;
  ~instruction_counter() {
    if (fd_ >= 0) ::close(fd_);
  }
  [[nodiscard]] std::uint64_t read() const {  ///< 0 where there is no counter
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
  return took.count() / static_cast<double>(n);
}

std::uint64_t ops_per_round(const work& w) {
  std::uint64_t n = 1;
  w(n);  // Warm.
  for (;;) {
    const double ns = ns_per_op(w, n);
    const double wanted = static_cast<double>(std::chrono::nanoseconds{round_length}.count()) / ns;
    if (wanted < 2.0 * static_cast<double>(n)) return n;
    n = std::min(static_cast<std::uint64_t>(wanted), n * 10);
  }
}

struct series {
  series(const work& w) : does{w}, n{ops_per_round(w)} {}
  const work& does;
  std::uint64_t n;
  std::vector<double> ns;
  double instructions = 0;
  double allocations = 0;

  void round(const instruction_counter& counter) {
    const std::uint64_t allocated = allocation_count();
    const std::uint64_t executed = counter.read();
    const double took = ns_per_op(does, n);
    const double ops = static_cast<double>(n);
    instructions = static_cast<double>(counter.read() - executed) / ops;
    // The vector below grows outside of what is counted.
    allocations = std::max(allocations, static_cast<double>(allocation_count() - allocated) / ops);
    ns.push_back(took);
  }
  double quantile(const scale& as, double q) {
    std::sort(ns.begin(), ns.end());
    if (as.inverse) q = 1 - q;
    const double at = ns[static_cast<std::size_t>(q * static_cast<double>(ns.size() - 1))];
    return as.inverse ? as.per_ns / at : at * as.per_ns;
  }
};

}  // namespace

recorder::medians recorder::compare(const std::string& which, const scale& as,
                                    const std::vector<side>& others, const work& ours) {
  const instruction_counter counter;
  std::vector<series> all;
  all.reserve(others.size() + 1);
  for (const side& other : others) all.emplace_back(other.does);
  all.emplace_back(ours);
  for (int i = 0; i < rounds; ++i) {
    for (series& s : all) s.round(counter);
  }
  const auto print = [&](const std::string& name, series& s) {
    std::printf("  %-34s %-18s %10.3f %-6s (%.3f .. %.3f)", which.c_str(), name.c_str(),
                s.quantile(as, 0.5), as.unit.c_str(), s.quantile(as, 0.1), s.quantile(as, 0.9));
  };
  series& us = all.back();
  for (std::size_t i = 0; i < others.size(); ++i) {
    print(others[i].name, all[i]);
    std::printf("\n");
  }
  print("softverbs", us);
  const medians found{us.quantile(as, 0.5), others.empty() ? 0 : all[0].quantile(as, 0.5)};
  for (std::size_t i = 0; i < others.size(); ++i) {
    const double theirs = all[i].quantile(as, 0.5);
    std::printf("  %.3g x %s", found.ours / theirs, others[i].name.c_str());
    figures_.push_back({which + " / " + others[i].name, as.metric, as.unit, found.ours, theirs});
  }
  if (others.empty()) figures_.push_back({which, as.metric, as.unit, found.ours, 0});
  if (us.instructions > 0) {
    std::printf("  %.0f instructions", us.instructions);
    figures_.push_back({which, "instructions", "1/op", us.instructions, 0});
  }
  std::printf("\n");
  std::fflush(stdout);
  allocated(which, us.allocations);
  return found;
}

void recorder::count(figure f) {
  std::printf("  %-34s %-18s %10.3f %-6s", f.which.c_str(), f.metric.c_str(), f.value,
              f.unit.c_str());
  if (f.baseline != 0) std::printf(" beside %.3f: %.3f", f.baseline, f.value / f.baseline);
  std::printf("\n");
  std::fflush(stdout);
  figures_.push_back(std::move(f));
}

void recorder::bar(const std::string& what, bool holds) {
  std::printf("    bar: %s: %s\n", what.c_str(), holds ? "holds" : "MISSED");
  if (!holds) missed_.push_back(what);
}

void recorder::allocated(const std::string& which, double calls_per_operation) {
  figures_.push_back({which, "allocations", "1/op", calls_per_operation, 0});
  if (calls_per_operation == 0) return;
  std::printf("    failed: %s: %g allocations an operation, once warm\n", which.c_str(),
              calls_per_operation);
  allocated_ = true;
}

void recorder::write_json(const std::string& path) const {
  std::ofstream out{path};
  out << "[";
  const char* separator = "\n";
  for (const figure& f : figures_) {
    out << separator << R"(  {"bench": "softverbs", "case": ")" << f.which << R"(", "metric": ")"
        << f.metric << R"(", "unit": ")" << f.unit << R"(", "value": )" << f.value;
    if (f.baseline != 0) {
      out << R"(, "baseline": )" << f.baseline << R"(, "ratio": )" << f.value / f.baseline;
    } else {
      out << R"(, "baseline": null, "ratio": null)";
    }
    out << "}";
    separator = ",\n";
  }
  out << "\n]\n";
  if (!out.flush()) throw std::runtime_error{"cannot write " + path};
}

int recorder::verdict() const {
  for (const std::string& what : missed_) std::printf("MISSED: %s\n", what.c_str());
  if (missed_.empty()) std::printf("Every bar holds.\n");
  return allocated_ ? 1 : 0;
}

}  // namespace bench
