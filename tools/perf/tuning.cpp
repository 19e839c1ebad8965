#include "tuning.hpp"

#include "size.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>

namespace perf {
namespace {

/// The choice for one length: an algorithm, or null for the built-in one.
using choice = const algorithm*;

const algorithm_time& time_of(const collective_result& r, choice by) {
  return *std::ranges::find(r.times, by == nullptr ? r.builtin : by, &algorithm_time::by);
}

/// Returns the part of a time by which it may be wrong: about a standard error of the median.
double doubt(const algorithm_time& t) {
  return (t.us_high - t.us_low) / t.us / std::sqrt(double(collective_rounds));
}

double gain_of(const collective_result& r, choice by) {
  return time_of(r, nullptr).us / time_of(r, by).us;
}

/// The costs are logarithms of times, so that each length counts as much as any.
double cost(const collective_result& r, choice by) {
  const double us = std::log(time_of(r, by).us);
  if (by == nullptr || by == r.builtin) return us;
  return us + std::log(noticeable) + doubt(time_of(r, by)) + doubt(time_of(r, nullptr));
}
double cost_of_switch(choice from, choice to) {
  return to == nullptr || to == from ? 0 : std::log(worthwhile);
}

/// Results of one operation, ascending, with the cheapest sequence of choices for them (Viterbi).
class operation_choices {
 public:
  explicit operation_choices(std::vector<const collective_result*> results)
      : results_{std::move(results)} {
    const std::size_t choices = results_.front()->times.size() + 1;
    choices_.reserve(choices);
    choices_.push_back(nullptr);
    for (const algorithm_time& t : results_.front()->times) choices_.push_back(t.by);
    std::vector<double> costs;
    costs.reserve(choices);
    for (const choice c : choices_)
      costs.push_back(cost(*results_.front(), c) + cost_of_switch(nullptr, c));
    for (std::size_t i = 1; i < results_.size(); ++i) costs = step(i, costs);
    std::size_t best = std::size_t(std::ranges::min_element(costs) - costs.begin());
    best_.resize(results_.size());
    for (std::size_t i = results_.size(); i-- > 0;) {
      best_[i] = choices_[best];
      if (i > 0) best = before_[i - 1][best];
    }
  }

  void add_changes(std::vector<tuned_range>& to) const {
    for (std::size_t begin = 0, end = 0; begin < best_.size(); begin = end) {
      end = begin + 1;
      while (end < best_.size() && best_[end] == best_[begin]) ++end;
      if (best_[begin] == nullptr) continue;
      const bool follows_change = begin > 0 && best_[begin - 1] != nullptr;
      // A length in two ranges belongs to the first of them.
      const std::size_t first = follows_change ? begin - 1 : begin;
      double gains = 0;
      for (std::size_t i = begin; i < end; ++i) gains += std::log(gain_of(*results_[i], best_[i]));
      to.push_back({.by = best_[begin],
                    .first_bytes = begin == 0 ? 0 : results_[first]->what.size_bytes,
                    .last_bytes = results_[end - 1]->what.size_bytes,
                    .gain = std::exp(gains / double(end - begin))});
    }
  }

 private:
  std::vector<double> step(std::size_t i, const std::vector<double>& costs) {
    std::vector<double> next;
    std::vector<std::size_t>& before = before_.emplace_back();
    for (const choice to : choices_) {
      std::vector<double> through;
      through.reserve(choices_.size());
      for (std::size_t from = 0; from < choices_.size(); ++from)
        through.push_back(costs[from] + cost_of_switch(choices_[from], to));
      const auto least = std::ranges::min_element(through);
      before.push_back(std::size_t(least - through.begin()));
      next.push_back(*least + cost(*results_[i], to));
    }
    return next;
  }

  const std::vector<const collective_result*> results_;
  std::vector<choice> choices_;
  std::vector<std::vector<std::size_t>> before_;  ///< for each length but the first, and choice
  std::vector<choice> best_;
};

std::string text_of(const tuned_range& c, unsigned ranks) {
  std::string text = std::string{cordma::detail::to_string(c.by->kind)} + '=' + c.by->name;
  if (c.last_bytes != 0) {
    text += '@' + (c.first_bytes == 0 ? "" : size_text(c.first_bytes)) + "..";
    text += size_text(c.last_bytes);
  }
  return text + ':' + std::to_string(ranks) + ".." + std::to_string(ranks);
}

/// Returns what the changes mean for one case, apart from the table that reads their text.
const algorithm* chosen_by(const std::vector<tuned_range>& changes, const collective_result& r) {
  const auto found = std::ranges::find_if(changes, [&r](const tuned_range& c) {
    return c.by->kind == r.what.kind && r.what.size_bytes >= c.first_bytes &&
           r.what.size_bytes <= c.last_bytes;
  });
  return found == changes.end() ? r.builtin : found->by;
}

}  // namespace

std::vector<tuned_range> find_tuned_ranges(const std::vector<collective_result>& results) {
  std::vector<tuned_range> changes;
  for (std::size_t k = 0; k < cordma::detail::collective_kinds; ++k) {
    std::vector<const collective_result*> of_kind;
    for (const collective_result& r : results)
      if (r.what.kind == collective_kind(k)) of_kind.push_back(&r);
    std::ranges::sort(of_kind, {}, [](const auto* r) { return r->what.size_bytes; });
    if (!of_kind.empty()) operation_choices{of_kind}.add_changes(changes);
  }
  return changes;
}

std::string table_text(const std::vector<tuned_range>& changes,
                       const std::vector<collective_result>& results,
                       const cordma::detail::host_map* hosts) {
  if (results.empty()) return "";
  std::string text;
  for (const tuned_range& c : changes) {
    if (!text.empty()) text += ',';
    text += text_of(c, results.front().what.ranks);
  }
  const cordma::detail::algorithm_table read{text};
  for (const collective_result& r : results) {
    const algorithm& chosen = read.choose(r.what.ranks, hosts, r.what.call_without_memory());
    if (&chosen != chosen_by(changes, r)) {
      throw std::logic_error{"\"" + text + "\" chooses " + chosen.name + " for " +
                             cordma::detail::to_string(r.what.kind) + " of " +
                             std::to_string(r.what.size_bytes) + " bytes: report this"};
    }
  }
  return text;
}

}  // namespace perf
