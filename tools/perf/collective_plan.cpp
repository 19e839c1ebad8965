#include "collective_plan.hpp"

#include "size.hpp"

#include <algorithm>
#include <stdexcept>

namespace perf {
namespace {

using cordma::detail::algorithms;
using cordma::detail::collective_kinds;

[[noreturn]] void refuse_algorithm(const std::string& name, const std::string& why) {
  throw std::invalid_argument{"--algorithm '" + name + "': " + why};
}

std::vector<const algorithm*> named(const collectives_options& o, collective_kind kind) {
  std::vector<const algorithm*> all = algorithms_of(kind);
  if (!o.algorithms.empty())
    std::erase_if(all, [&o](const algorithm* a) {
      return std::ranges::find(o.algorithms, a->name) == o.algorithms.end();
    });
  return all;
}

std::vector<collective_kind> all_kinds() {
  std::vector<collective_kind> all(collective_kinds);
  for (std::size_t k = 0; k < collective_kinds; ++k) all[k] = collective_kind(k);
  return all;
}

/// Returns the operations that are asked for. Without `--operation`, all that have the algorithms.
std::vector<collective_kind> operations_of(const collectives_options& o) {
  std::vector<collective_kind> all = o.operations.empty() ? all_kinds() : o.operations;
  if (o.operations.empty())
    std::erase_if(all, [&o](collective_kind kind) { return named(o, kind).empty(); });
  return all;
}

bool has_algorithm(collective_kind kind, const std::string& name) {
  const auto all = algorithms_of(kind);
  return std::ranges::any_of(all, [&name](const algorithm* a) { return name == a->name; });
}

/// Each name is an algorithm of an operation, and each operation has an algorithm of a name.
void check_algorithms(const collectives_options& o) {
  if (o.algorithms.empty()) return;
  const std::vector<collective_kind> asked = o.operations.empty() ? all_kinds() : o.operations;
  const auto refuse = [](const std::string& name, const std::vector<collective_kind>& kinds) {
    std::string there_are;
    for (const collective_kind kind : kinds)
      there_are += std::string{there_are.empty() ? "" : "; "} + cordma::detail::to_string(kind) +
                   " has " + names_of(algorithms_of(kind));
    refuse_algorithm(name, there_are);
  };
  for (const std::string& name : o.algorithms)
    if (std::ranges::none_of(asked, [&](collective_kind k) { return has_algorithm(k, name); }))
      refuse(name, asked);
  for (const collective_kind kind : o.operations)
    if (named(o, kind).empty()) refuse(o.algorithms.front(), {kind});
}

std::uint64_t bit_of(const algorithm& a) noexcept {
  return std::uint64_t{1} << (&a - algorithms().data());
}

/// Returns the algorithms to measure, as bits; none if there is nothing to choose between.
std::uint64_t bits_of(const collectives_options& o, const planned_ranks& with,
                      const collective_case& what) {
  const auto call = what.call_without_memory();
  if (!o.is_tuning && o.algorithms.empty())
    return bit_of(with.table.choose(with.count, with.hosts, call));
  std::uint64_t bits = 0;
  std::size_t count = 0;
  for (const algorithm* const a : named(o, what.kind)) {
    if (can_run(*a, with.hosts, call)) {
      bits |= bit_of(*a);
      ++count;
    } else if (!o.is_tuning) {
      refuse_algorithm(
          a->name, std::string{cordma::detail::to_string(what.kind)} +
                       " has it for several hosts with two ranks each or more: " + "leave it out");
    }
  }
  return o.is_tuning && count < 2 ? 0 : bits;
}

void check_memory(const collectives_options& o, const collective_case& what) {
  if (what.memory_bytes() <= o.memory_bytes_max) return;
  throw std::invalid_argument{"--sizes " + size_text(what.size_bytes) + ": " +
                              cordma::detail::to_string(what.kind) + " takes " +
                              size_text(what.memory_bytes()) + " on a rank, and --memory gives " +
                              size_text(o.memory_bytes_max)};
}

}  // namespace

static_assert(sizeof(planned_case) == 24);

void check(const collectives_options& o) {
  for (const std::uint64_t size : o.sizes)
    check_range("--sizes", size, collective_case::size_min, collective_case::size_max);
  if (o.ranks != 0)
    check_range("--ranks", o.ranks, collectives_options::ranks_min, collectives_options::ranks_max);
  if (o.is_tuning && !o.algorithms.empty())
    refuse_algorithm(o.algorithms.front(), "--tune measures all of them: leave it out");
  check_algorithms(o);
}

std::vector<const algorithm*> planned_case::chosen() const {
  std::vector<const algorithm*> all;
  for (const algorithm& a : cordma::detail::algorithms())
    if ((algorithms & bit_of(a)) != 0) all.push_back(&a);
  return all;
}

std::vector<planned_case> make_plan(const collectives_options& o, const planned_ranks& with) {
  std::vector<planned_case> plan;
  for (const collective_kind kind : operations_of(o)) {
    std::uint64_t last = ~std::uint64_t{0};
    for (const std::uint64_t size : o.sizes) {
      const collective_case what = collective_case::fitting(kind, size, with.count);
      // Short lengths may all be one element a rank.
      if (what.size_bytes == last) continue;
      last = what.size_bytes;
      check_memory(o, what);
      if (const std::uint64_t bits = bits_of(o, with, what); bits != 0)
        plan.push_back(
            {.size_bytes = what.size_bytes, .algorithms = bits, .kind = std::uint32_t(kind)});
    }
  }
  if (plan.empty())
    throw std::invalid_argument{
        "--tune: only one algorithm of these operations can run on these ranks: name others"};
  return plan;
}

void check(std::span<const planned_case> plan, unsigned ranks) {
  for (const planned_case& c : plan) {
    const bool is_sound =
        c.kind < collective_kinds && c.reserved == 0 && c.algorithms != 0 &&
        (c.algorithms >> algorithms().size()) == 0 &&
        c.size_bytes <= collective_case::size_max + collective_case::size_min * ranks &&
        collective_case::fitting(collective_kind(c.kind), c.size_bytes, ranks) == c.of(ranks) &&
        std::ranges::all_of(
            c.chosen(), [&c](const algorithm* a) { return a->kind == collective_kind(c.kind); });
    if (!is_sound)
      throw std::runtime_error{"rank 0 asks for operation " + std::to_string(c.kind) + " of " +
                               std::to_string(c.size_bytes) +
                               " bytes: start the same cordma-perf on all ranks"};
  }
}

}  // namespace perf
