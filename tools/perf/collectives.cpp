#include "collectives.hpp"

#include "collective_report.hpp"
#include "collective_timing.hpp"
#include "group/group_context.hpp"
#include "group/meeting_variables.hpp"
#include "progress.hpp"
#include "ranks_here.hpp"
#include "text.hpp"
#include "tuning.hpp"

#include <cordma/group/joining.hpp>
#include <cordma/runtime/runtime.hpp>

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <optional>
#include <stdexcept>
#include <utility>

namespace perf {
namespace {

using cordma::task;
using cordma::detail::group_context;

/// The longest spin where ranks share processors: several turns of the others.
constexpr std::chrono::milliseconds spin_max{1};

/// The first words of rank 0 to the others.
struct plan_head {
  std::uint64_t duration_ns = 0;
  std::uint64_t cases = 0;  ///< 0: there is nothing to do, and rank 0 says why
};
constexpr std::uint64_t cases_max = 1'000'000;

[[noreturn]] void throw_single() {
  throw std::invalid_argument{
      "one rank has nobody to talk to: say --ranks 4, or start several by mpirun or torchrun"};
}

/// One rank, from the meeting to the last operation.
class collectives_rank {
 public:
  collectives_rank(cordma::runtime& rt, const collectives_options& o) : rt_{rt}, options_{o} {}

  task<> live(cordma::meeting how, rank_outcome& outcome) {
    group_ = co_await cordma::group::join(rt_, std::move(how));
    try {
      co_await share_plan();
      if (!plan_.empty()) co_await measure_all();
      co_await group_.leave();
    } catch (const cordma::error& e) {
      outcome = outcome_of(e.failure());
    }
    if (why_ != nullptr) std::rethrow_exception(why_);
  }

 private:
  [[nodiscard]] bool decides() const noexcept { return group_.rank() == 0; }
  [[nodiscard]] rank_outcome outcome_of(const cordma::failure& f) const;
  void decide();
  task<> share_plan();
  task<> measure_all();
  void print(const collective_result& r);
  void print_end();

  cordma::runtime& rt_;
  const collectives_options& options_;
  cordma::group group_;
  plan_head head_{};
  std::vector<planned_case> plan_;
  std::vector<collective_result> results_;
  std::exception_ptr why_;  ///< rank 0 cannot make a plan
};

/// A failure that all ranks notice is told by the lowest that is left.
rank_outcome collectives_rank::outcome_of(const cordma::failure& f) const {
  const bool is_shared =
      f.code == cordma::errc::rank_failed || f.code == cordma::errc::ranks_disagree;
  if (!is_shared) return {.exit_status = 1, .why = f.to_string()};
  const auto culprit = unsigned(f.object.number);
  const bool speaks = group_.rank() == (culprit == 0 ? 1 : 0);
  return {.exit_status = 1,
          .why = "rank " + std::to_string(culprit) +
                 " has ended, or its host: start all ranks again (" + f.to_string() + ")",
          .is_by_another = true,
          .is_silent = !speaks};
}

void collectives_rank::decide() try {
  if (group_.size() == 1) throw_single();
  check_writable(options_.json_file);
  const group_context& context = *group_context::of(group_).get();
  plan_ = make_plan(
      options_,
      {.count = group_.size(), .hosts = &context.hosts(), .table = context.whole().algorithms()});
  head_ = {.duration_ns = std::uint64_t(std::chrono::nanoseconds{options_.duration}.count()),
           .cases = plan_.size()};
} catch (const std::exception&) {
  why_ = std::current_exception();
}

task<> collectives_rank::share_plan() {
  if (decides()) decide();
  co_await group_.broadcast(std::span<plan_head>{&head_, 1}, 0);
  if (head_.cases > cases_max)
    throw std::runtime_error{"rank 0 asks for " + std::to_string(head_.cases) +
                             " cases: start the same cordma-perf on all ranks"};
  plan_.resize(head_.cases);
  if (plan_.empty()) co_return;
  co_await group_.broadcast(std::span{plan_}, 0);
  check(plan_, group_.size());
}

task<> collectives_rank::measure_all() {
  collective_timing timing{group_, std::chrono::nanoseconds{std::int64_t(head_.duration_ns)}};
  for (const planned_case& c : plan_) {
    std::optional<progress_line> line;
    if (decides()) {
      line.emplace();
      line->show(title(c.of(group_.size())));
    }
    const collective_result r = co_await timing.measure(c);
    line.reset();
    if (decides()) print(r);
  }
  if (decides()) print_end();
}

void collectives_rank::print(const collective_result& r) {
  if (!options_.prints_json) {
    if (results_.empty())
      std::printf("device %s, mode %s, %u ranks\n%s", std::string{rt_.device_name()}.c_str(),
                  to_string(options_.mode), group_.size(),
                  collectives_head(is_one_host(group_)).c_str());
    std::printf("%s", collective_rows(r).c_str());
  }
  results_.push_back(r);
}

void collectives_rank::print_end() {
  std::optional<tuned_table> tuned;
  if (options_.is_tuning) {
    const auto ranges = find_tuned_ranges(results_);
    tuned = {.ranges = ranges,
             .text = table_text(ranges, results_, &group_context::of(group_)->hosts())};
  }
  const std::string json = collectives_json(
      {.device = std::string{rt_.device_name()}, .mode = options_.mode, .ranks = group_.size()},
      results_, tuned);
  if (options_.prints_json) {
    std::printf("%s", json.c_str());
  } else if (tuned) {
    std::printf("%s", tuned_rows(*tuned, results_).c_str());
  }
  if (!options_.json_file.empty()) write_file(options_.json_file, json);
}

rank_outcome run_rank(const collectives_options& o, const std::function<cordma::meeting()>& how) {
  rank_outcome outcome;
  try {
    cordma::runtime rt{{.device = o.device, .cq = {.mode = o.mode, .spin_max = spin_max}}};
    collectives_rank rank{rt, o};
    rt.run(rank.live(how(), outcome));
  } catch (const std::invalid_argument& e) {
    return {.exit_status = misuse_status, .why = e.what()};
  } catch (const std::exception& e) {
    return {.exit_status = 1, .why = e.what()};
  }
  return outcome;
}

cordma::meeting meeting_of_launcher() {
  const auto launchers = cordma::detail::launchers_of_environment();
  if (!launchers.pmix && !launchers.torchrun) throw_single();
  return cordma::meeting::by_launcher();
}

}  // namespace

int run_collectives(const collectives_options& o) {
  if (o.ranks != 0) {
    // An abstract socket of this process's, which nobody has to remove.
    const std::string at = "unix:@cordma-perf-" + std::to_string(::getpid());
    run_ranks_here(o.ranks, [&](unsigned rank) {
      return run_rank(o, [&] { return cordma::meeting::at(at, rank, o.ranks); });
    });
    return 0;
  }
  const rank_outcome outcome = run_rank(o, meeting_of_launcher);
  if (!outcome.why.empty() && !outcome.is_silent)
    std::fprintf(stderr, "cordma-perf: %s\n", outcome.why.c_str());
  return outcome.exit_status;
}

}  // namespace perf
