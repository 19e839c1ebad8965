#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace bench {

/// One line of the table and one object of the JSON: `value` is cordma's, `baseline` what it stands
/// beside, `ratio` value / baseline. A baseline of 0: there is none.
struct figure {
  std::string bench, which, metric, unit;
  double value = 0;
  double baseline = 0;
};

/// Does its work `n` times. Setup belongs outside.
using work = std::function<void(std::uint64_t n)>;

/// Measures for a benchmark. The two sides alternate in short rounds, so that both meet the same
/// machine. A figure is the median over rounds, and its spread is printed beside it.
class recorder {
 public:
  explicit recorder(std::string name) : name_{std::move(name)} {}

  /// Prints the nanoseconds an operation, as median and 99th percentile of the rounds. Each side
  /// also has its allocations and, where the machine counts them, its instructions an operation. An
  /// allocation on our side fails the run.
  void compare(std::string_view which, const work& baseline, const work& ours);
  /// Sets the length of each side's later rounds. Bulk work needs longer rounds: each side then
  /// finds nothing of its own in the caches when its turn comes.
  void set_round_length(std::chrono::milliseconds length) noexcept { round_length_ = length; }
  /// Measures our side as `compare` does, without a baseline.
  void measure(std::string_view which, const work& ours);
  /// Allocations of an operation on our side that do not fail the run from now on: those of the
  /// device's own library, as in ibv_reg_mr.
  void allow_allocations(double per_op) noexcept { allowed_ = per_op; }
  /// A figure that was counted rather than timed.
  void count(std::string_view which, std::string_view metric, std::string_view unit, double value,
             double baseline = 0);

  [[nodiscard]] const std::vector<figure>& figures() const noexcept { return figures_; }
  [[nodiscard]] bool allocated() const noexcept { return allocated_; }

 private:
  void record(std::string_view which, const work* baseline, const work& ours);

  std::string name_;
  std::vector<figure> figures_;
  std::chrono::milliseconds round_length_{5};
  double allowed_ = 0;
  bool allocated_ = false;
};

enum class where { anywhere, on_device };

struct registration {
  registration(const char* name, const char* question, where runs, void (*run)(recorder&));
};

}  // namespace bench

#define CORDMA_BENCH_JOIN(a, b) a##b
#define CORDMA_BENCH(name, question, runs, id)                           \
  static void CORDMA_BENCH_JOIN(run_, id)(bench::recorder&);             \
  static const bench::registration CORDMA_BENCH_JOIN(registered_, id){   \
      name, question, bench::where::runs, &CORDMA_BENCH_JOIN(run_, id)}; \
  static void CORDMA_BENCH_JOIN(run_, id)([[maybe_unused]] bench::recorder & recorder)
/// One question: `BENCH("coro/await", "What does a task cost?") { recorder.compare(…); }`.
#define BENCH(name, question) CORDMA_BENCH(name, question, anywhere, __LINE__)
/// A question as BENCH's, for work that needs an RDMA device.
#define BENCH_ON_DEVICE(name, question) CORDMA_BENCH(name, question, on_device, __LINE__)
