#include "collective_case.hpp"

#include "group/reductions.hpp"

#include <stdexcept>

namespace perf {

using cordma::detail::collective_call;

namespace {

constexpr std::uint64_t element_bytes = sizeof(float);

bool is_reduction(collective_kind kind) noexcept {
  using enum collective_kind;
  return kind == reduce || kind == all_reduce || kind == reduce_scatter || kind == scan;
}

const cordma::detail::reducer& sum_of_floats() {
  static const cordma::detail::reducer sum =
      cordma::detail::reducer_of(cordma::detail::element_type_of<float>(), cordma::reduction::sum);
  return sum;
}

}  // namespace

collective_kind parse_collective(std::string_view text) {
  std::string all;
  for (std::size_t i = 0; i < cordma::detail::collective_kinds; ++i) {
    const char* const name = cordma::detail::to_string(collective_kind(i));
    if (text == name) return collective_kind(i);
    all += (all.empty() ? "" : ", ") + std::string{name};
  }
  throw std::invalid_argument{"--operation '" + std::string{text} + "': it is one of " + all};
}

std::vector<const algorithm*> algorithms_of(collective_kind kind) {
  std::vector<const algorithm*> all;
  for (const algorithm& a : cordma::detail::algorithms())
    if (a.kind == kind) all.push_back(&a);
  return all;
}

std::string names_of(const std::vector<const algorithm*>& all) {
  std::string names;
  for (const algorithm* const a : all) names += (names.empty() ? "" : ", ") + std::string{a->name};
  return names;
}

collective_case collective_case::fitting(collective_kind kind, std::uint64_t size_bytes,
                                         unsigned ranks) {
  using enum collective_kind;
  if (kind == barrier) return {.kind = kind, .size_bytes = 0, .ranks = ranks};
  const bool has_blocks = kind == all_gather || kind == reduce_scatter;
  const std::uint64_t unit =
      (has_blocks ? ranks : 1) * (is_reduction(kind) || has_blocks ? element_bytes : 1);
  return {.kind = kind, .size_bytes = (size_bytes + unit - 1) / unit * unit, .ranks = ranks};
}

std::uint64_t collective_case::in_bytes(unsigned rank) const noexcept {
  using enum collective_kind;
  switch (kind) {
    case barrier:
    case broadcast: return 0;
    case scatter: return rank == 0 ? ranks * size_bytes : 0;
    case all_gather: return size_bytes / ranks;
    case all_to_all: return ranks * size_bytes;
    default: return size_bytes;
  }
}

std::uint64_t collective_case::out_bytes(unsigned rank) const noexcept {
  using enum collective_kind;
  switch (kind) {
    case barrier: return 0;
    case gather: return rank == 0 ? ranks * size_bytes : 0;
    case reduce: return rank == 0 ? size_bytes : 0;
    case reduce_scatter: return size_bytes / ranks;
    case all_to_all: return ranks * size_bytes;
    default: return size_bytes;
  }
}

std::uint64_t collective_case::moved_bytes() const noexcept {
  using enum collective_kind;
  const std::uint64_t others = ranks - 1;
  switch (kind) {
    case barrier: return 0;
    case scatter:
    case gather:
    case all_to_all: return others * size_bytes;
    case all_gather:
    case reduce_scatter: return size_bytes / ranks * others;
    case all_reduce: return 2 * size_bytes * others / ranks;
    default: return size_bytes;
  }
}

bool collective_case::runs_ahead() const noexcept {
  using enum collective_kind;
  return kind == broadcast || kind == scatter || kind == gather || kind == reduce || kind == scan;
}

collective_call collective_case::call(unsigned rank, const cordma::const_local_mr_slice& in,
                                      const cordma::local_mr_slice& out) const {
  using enum collective_kind;
  collective_call made{
      .kind = kind, .in = in.first(in_bytes(rank)), .out = out.first(out_bytes(rank))};
  if (is_reduction(kind)) made.reduction = &sum_of_floats();
  made.blocks.each = kind == all_gather || kind == reduce_scatter ? size_bytes / ranks : size_bytes;
  if (kind == all_to_all) made.received.each = size_bytes;
  return made;
}

collective_call collective_case::call_without_memory() const {
  const cordma::local_mr_slice none{nullptr, in_bytes(0) + out_bytes(0), nullptr, 0, 0};
  return call(0, none, none);
}

}  // namespace perf
