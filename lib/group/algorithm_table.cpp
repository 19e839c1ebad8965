#include "algorithm_table.hpp"

#include "algorithms/steps.hpp"
#include "base/environment_variable.hpp"
#include "base/failures.hpp"
#include "host_map.hpp"
#include "table_text.hpp"

#include <algorithm>
#include <array>
#include <cstdio>

namespace cordma::detail {
namespace {

using enum collective_kind;
using need = algorithm::host_need;

constexpr std::array all_algorithms{
    algorithm{barrier, "dissemination", dissemination_barrier},
    algorithm{barrier, "two_level", two_level_barrier, false, true, need::two_levels},
    algorithm{broadcast, "binomial", binomial_broadcast},
    algorithm{broadcast, "chain", chain_broadcast},
    algorithm{broadcast, "scatter_all_gather", scattered_broadcast},
    algorithm{broadcast, "two_level", two_level_broadcast, false, true, need::two_levels},
    algorithm{scatter, "binomial", binomial_scatter, true, false},
    algorithm{scatter, "linear", linear_scatter},
    algorithm{gather, "binomial", binomial_gather, true, false},
    algorithm{gather, "linear", linear_gather},
    algorithm{all_gather, "bruck", bruck_all_gather},
    algorithm{all_gather, "recursive_doubling", doubling_all_gather},
    algorithm{all_gather, "ring", ring_all_gather},
    algorithm{all_gather, "two_level", two_level_all_gather, false, false, need::regular},
    algorithm{reduce, "binomial", binomial_reduce},
    algorithm{reduce, "rabenseifner", rabenseifner_reduce},
    algorithm{reduce, "two_level", two_level_reduce, false, true, need::two_levels},
    algorithm{all_reduce, "recursive_doubling", doubling_all_reduce},
    algorithm{all_reduce, "rabenseifner", rabenseifner_all_reduce},
    algorithm{all_reduce, "ring", ring_all_reduce, false},
    algorithm{all_reduce, "two_level", two_level_all_reduce, false, true, need::two_levels},
    algorithm{reduce_scatter, "recursive_halving", halving_reduce_scatter},
    algorithm{reduce_scatter, "ring", ring_reduce_scatter, false, false},
    algorithm{reduce_scatter, "pairwise", pairwise_reduce_scatter, false},
    algorithm{all_to_all, "bruck", bruck_all_to_all, true, false},
    algorithm{all_to_all, "pairwise", pairwise_all_to_all},
    algorithm{scan, "recursive_doubling", doubling_scan},
};

/// Without changes. The last row of each kind runs wherever none before it does. Powers of two up
/// to 16 halve and double, however long the message is: most bytes then stay near. They scatter a
/// broadcast that is too short to fill a chain of segments.
constexpr std::string_view defaults =
    "barrier=two_level barrier=dissemination "
    "broadcast=two_level@..1M broadcast=binomial@..16K broadcast=scatter_all_gather@256K..1M:4..4 "
    "broadcast=scatter_all_gather@256K..2M:8..8 broadcast=scatter_all_gather@256K..4M:16..16 "
    "broadcast=chain@..:..64 broadcast=scatter_all_gather@..16M broadcast=chain "
    "scatter=binomial@..16K scatter=linear gather=binomial@..16K gather=linear "
    "all_gather=two_level@..1M all_gather=bruck@..4K all_gather=recursive_doubling:4..4 "
    "all_gather=recursive_doubling:8..8 all_gather=recursive_doubling:16..16 all_gather=ring "
    "reduce=two_level reduce=binomial@..16K reduce=rabenseifner "
    "all_reduce=two_level@..1M all_reduce=recursive_doubling@..4K all_reduce=rabenseifner@..256K "
    "all_reduce=rabenseifner:4..4 all_reduce=rabenseifner:8..8 all_reduce=rabenseifner:16..16 "
    "all_reduce=ring all_reduce=rabenseifner reduce_scatter=recursive_halving@..256K "
    "reduce_scatter=recursive_halving:4..4 reduce_scatter=recursive_halving:8..8 "
    "reduce_scatter=recursive_halving:16..16 reduce_scatter=ring reduce_scatter=pairwise "
    "reduce_scatter=recursive_halving "
    "all_to_all=bruck@..256:8.. all_to_all=pairwise scan=recursive_doubling";

std::string range_text(std::size_t first, std::size_t last, std::size_t highest) {
  std::string text = first == 0 ? "" : std::to_string(first);
  text += "..";
  if (last != highest) text += std::to_string(last);
  return text;
}

task<> copy_own(exchange& x, const collective_call& call) {
  if (!call.in.empty()) x.copy(call.out, call.in);
  co_return;
}

}  // namespace

std::span<const algorithm> algorithms() noexcept { return all_algorithms; }

bool can_run(const algorithm& a, const host_map* hosts, const collective_call& call) noexcept {
  if (call.is_reproducible && !a.is_reproducible) return false;
  if (call.is_uneven && !a.takes_uneven) return false;
  if (a.hosts == need::none) return true;
  if (hosts == nullptr || !hosts->has_two_levels()) return false;
  return a.hosts == need::two_levels || hosts->is_regular();
}

algorithm_table::algorithm_table(std::string_view changes) {
  bool has_segment = false;
  const auto add = [&](const table_change& change) {
    if (change.segment_bytes == 0) return rows_.push_back(change.row);
    if (!has_segment) segment_bytes_ = change.segment_bytes;
    has_segment = true;
  };
  read_changes(changes, add);
  read_changes(defaults, add);
}

algorithm_table algorithm_table::with(const algorithm& a) const {
  algorithm_table changed = *this;
  changed.rows_.insert(changed.rows_.begin(), row{.chosen = &a});
  return changed;
}

const algorithm& algorithm_table::choose(unsigned ranks, const host_map* hosts,
                                         const collective_call& call) const {
  const std::size_t bytes = call.size_bytes(ranks);
  const auto found = std::ranges::find_if(rows_, [&](const algorithm_table::row& r) {
    return r.chosen->kind == call.kind && bytes >= r.bytes_min && bytes <= r.bytes_max &&
           ranks >= r.ranks_min && ranks <= r.ranks_max && can_run(*r.chosen, hosts, call);
  });
  CORDMA_ASSERT(found != rows_.end(), "the last row of each kind runs always");
  return *found->chosen;
}

std::string algorithm_table::to_string() const {
  std::array<char, 128> line;
  const auto text_of = [&](const char* kind, const char* name, const std::string& bytes,
                           const std::string& ranks) {
    std::snprintf(line.data(), line.size(), "%-15s %-19s %-21s %s\n", kind, name, bytes.c_str(),
                  ranks.c_str());
    return std::string{line.data()};
  };
  std::string text = text_of("operation", "algorithm", "bytes", "ranks");
  const row all;
  for (const row& r : rows_)
    text += text_of(detail::to_string(r.chosen->kind), r.chosen->name,
                    range_text(r.bytes_min, r.bytes_max, all.bytes_max),
                    range_text(r.ranks_min, r.ranks_max, all.ranks_max));
  return text + "segment " + std::to_string(segment_bytes_) + '\n';
}

algorithm_table configured_algorithms(std::string_view changes) {
  constexpr const char* variable = "CORDMA_COLLECTIVES";
  const char* const text = variable_text(variable);
  if (text == nullptr) return algorithm_table{changes};
  try {
    static_cast<void>(algorithm_table{text});
  } catch (const error& e) {
    throw_wrong_variable(variable, text, "is wrong: " + std::string{e.failure().detail.view()});
  }
  return algorithm_table{std::string{changes} + ' ' + text};
}

task<> run_unchecked(exchange& x, const collective_call& call, const algorithm_table& table) {
  if (x.size() == 1) return copy_own(x, call);
  return table.choose(x, call).run(x, call, table);
}

task<> run(exchange& x, const collective_call& call, const algorithm_table& table) {
  call.check(x.rank(), x.size());
  // A ring has as many messages between two ranks as an operation can have.
  const std::size_t bytes = std::max(call.in.size_bytes(), call.out.size_bytes());
  const std::size_t rounds = bytes / table.segment_bytes() + 1;
  if (rounds > part_steps / x.size())
    throw_failure(errc::limit_exceeded, to_string(call.kind),
                  detail_text("%zu bytes on %u ranks are too many segments of %zu bytes: make "
                              "these longer (segment=)",
                              bytes, x.size(), table.segment_bytes()));
  return run_unchecked(x, call, table);
}

}  // namespace cordma::detail
