#include "shrink.hpp"

#include <algorithm>
#include <cstddef>

namespace cordma::sim::detail {
namespace {

using ranges = std::vector<decision_set::range>;

/// Parts of a long run of decisions that are taken back at once, at first.
constexpr std::uint64_t parts_max = 64;

/// Returns the decisions of a kind, as the parts that are taken back one by one.
ranges parts_of(const trial& run, decision_kind kind) {
  ranges parts;
  if (kind == decision_kind::fault) {
    for (const std::uint64_t one : run.faults_happened) parts.push_back({one, one});
    return parts;
  }
  const std::uint64_t made = run.decisions_made[std::size_t(kind)];
  const std::uint64_t step = std::max<std::uint64_t>(1, (made + parts_max - 1) / parts_max);
  for (std::uint64_t first = 0; first < made; first += step)
    parts.push_back({first, std::min(made, first + step) - 1});
  return parts;
}

ranges without(const ranges& all, std::size_t first, std::size_t count) {
  ranges rest{all.begin(), all.begin() + std::ptrdiff_t(first)};
  rest.insert(rest.end(), all.begin() + std::ptrdiff_t(first + count), all.end());
  return rest;
}

}  // namespace

plan shrink(const trial& all, unsigned tries, const std::function<trial(const plan&)>& run) {
  plan best;
  trial last = all;
  const auto shows = [&](const plan& candidate) {
    if (tries == 0) return false;
    --tries;
    trial t = run(candidate);
    if (!t.is_found) return false;
    best = candidate;
    last = std::move(t);
    return true;
  };
  for (const auto kind : {decision_kind::fault, decision_kind::network, decision_kind::schedule}) {
    if (shows(best.with(kind, decision_set{ranges{}}))) continue;
    // Ever smaller parts (delta debugging: Zeller and Hildebrandt, 2002).
    ranges kept = parts_of(last, kind);
    if (kind == decision_kind::fault) shows(best.with(kind, decision_set{kept}));
    if (kept.size() < 2) continue;
    for (std::size_t width = std::max<std::size_t>(kept.size() / 2, 1);; width /= 2) {
      for (std::size_t first = 0; first < kept.size();) {
        const std::size_t count = std::min(width, kept.size() - first);
        ranges rest = without(kept, first, count);
        if (shows(best.with(kind, decision_set{rest}))) {
          kept = std::move(rest);
        } else {
          first += count;
        }
      }
      if (width <= 1) break;
    }
  }
  return best;
}

}  // namespace cordma::sim::detail
