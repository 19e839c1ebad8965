#include "collective_timing.hpp"

#include "compare.hpp"
#include "group/group_context.hpp"
#include "operation_moments.hpp"

#include <cordma/runtime/runtime.hpp>

#include <algorithm>
#include <array>
#include <span>

namespace perf {

using cordma::detail::algorithm_table;
using cordma::detail::group_context;

namespace {

using clock = std::chrono::steady_clock;
/// Operations that make what they need, and as many that tell how long one takes.
constexpr std::uint64_t warm_up_count = 2;
constexpr std::uint64_t count_max = 1'000'000;

double ns_since(clock::time_point start) {
  return std::chrono::duration<double, std::nano>(clock::now() - start).count();
}

std::int64_t ns_now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(clock::now().time_since_epoch())
      .count();
}

cordma::local_mr memory_of(cordma::runtime& rt, std::uint64_t size_bytes) {
  return size_bytes == 0 ? cordma::local_mr{} : rt.memory().allocate_zeroed(size_bytes);
}

}  // namespace

bool is_one_host(const cordma::group& g) { return g.local_peers().size() == g.size(); }

/// An algorithm of a case, with the table by which it is chosen.
struct collective_timing::contender {
  const algorithm* by;
  algorithm_table table;
  std::uint64_t count = 1;  ///< operations in a round
};

cordma::task<double> collective_timing::run(const collective_case& what, const contender& by,
                                            std::uint64_t count) {
  const auto context = group_context::of(group_);
  const auto call = what.call(group_.rank(), in_.slice(), out_.slice());
  co_await group_.barrier();
  if (!what.runs_ahead()) {
    const auto start = clock::now();
    for (std::uint64_t i = 0; i < count; ++i) co_await group_context::run(context, call, by.table);
    co_return ns_since(start) / double(count);
  }
  operation_moments moments;
  moments.begun.reserve(count);
  moments.ended.reserve(count);
  for (std::uint64_t i = 0; i < count; ++i) {
    if (i > 0) co_await group_.barrier();
    moments.begun.push_back(ns_now());
    co_await group_context::run(context, call, by.table);
    moments.ended.push_back(ns_now());
  }
  if (!is_one_host(group_)) co_return moments.mean_of_own();
  co_return co_await moments.mean_of_all(group_);
}

cordma::task<> collective_timing::warm_up(const collective_case& what, contender& by) {
  static_cast<void>(co_await run(what, by, warm_up_count));
  const auto start = clock::now();
  static_cast<void>(co_await run(what, by, warm_up_count));
  const double ns_each = ns_since(start) / double(warm_up_count);
  std::array<std::uint64_t, 1> count{
      std::clamp<std::uint64_t>(std::uint64_t(ns_each_round_ / ns_each), 1, count_max)};
  co_await group_.broadcast(std::span<std::uint64_t>{count}, 0);
  by.count = std::clamp<std::uint64_t>(count.front(), 1, count_max);
}

cordma::task<collective_result> collective_timing::measure(planned_case planned) {
  const collective_case what = planned.of(group_.size());
  const auto& context = *group_context::of(group_).get();
  std::vector<contender> all;
  for (const algorithm* const a : planned.chosen())
    all.push_back({a, context.whole().algorithms().with(*a)});
  in_ = {};
  out_ = {};
  in_ = memory_of(group_.runtime(), what.in_bytes(group_.rank()));
  out_ = memory_of(group_.runtime(), what.out_bytes(group_.rank()));
  for (contender& one : all) co_await warm_up(what, one);

  std::vector<double> ns;
  for (std::size_t round = 0; round < collective_rounds; ++round)
    for (const contender& one : all) ns.push_back(co_await run(what, one, one.count));
  co_await group_.all_reduce(std::span{ns}, cordma::reduction::max);

  collective_result r{.what = what,
                      .builtin = &algorithm_table{}.choose(what.ranks, &context.hosts(),
                                                           what.call_without_memory())};
  for (std::size_t i = 0; i < all.size(); ++i) {
    std::vector<double> us;
    for (std::size_t at = i; at < ns.size(); at += all.size()) us.push_back(ns[at] / 1e3);
    r.times.push_back({.by = all[i].by,
                       .us = median(us),
                       .us_low = quantile(us, 0.25),
                       .us_high = quantile(us, 0.75),
                       .operations = all[i].count * collective_rounds});
  }
  co_return r;
}

}  // namespace perf
