#pragma once

#include "group/algorithm_table.hpp"
#include "group/collective_call.hpp"

#include <cordma/memory/slice.hpp>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace perf {

using cordma::detail::algorithm;
using cordma::detail::collective_kind;

/// \errors std::invalid_argument: no such operation; lists them.
collective_kind parse_collective(std::string_view text);
/// Returns all algorithms of an operation.
std::vector<const algorithm*> algorithms_of(collective_kind kind);
/// Returns the names with commas between.
std::string names_of(const std::vector<const algorithm*>& all);

/// An operation of one length, on a number of ranks. Root is rank 0; reductions add floats.
struct collective_case {
  collective_kind kind = collective_kind::barrier;
  std::uint64_t size_bytes = 0;  ///< the length by which a table chooses
  unsigned ranks = 1;

  static constexpr std::uint64_t size_min = 4;
  static constexpr std::uint64_t size_max = std::uint64_t{1} << 30;

  /// Makes the case of at least `size_bytes` that has whole elements and equal blocks.
  static collective_case fitting(collective_kind kind, std::uint64_t size_bytes, unsigned ranks);

  [[nodiscard]] std::uint64_t in_bytes(unsigned rank) const noexcept;
  [[nodiscard]] std::uint64_t out_bytes(unsigned rank) const noexcept;
  /// Returns the memory of the rank that takes most.
  [[nodiscard]] std::uint64_t memory_bytes() const noexcept { return in_bytes(0) + out_bytes(0); }
  /// Returns the bytes that some rank must send or receive, whatever the algorithm.
  [[nodiscard]] std::uint64_t moved_bytes() const noexcept;
  /// Returns true if a rank may begin the next operation while others have not begun this one.
  [[nodiscard]] bool runs_ahead() const noexcept;

  /// Makes the call, on memory of `in_bytes` and `out_bytes`.
  [[nodiscard]] cordma::detail::collective_call call(unsigned rank,
                                                     const cordma::const_local_mr_slice& in,
                                                     const cordma::local_mr_slice& out) const;
  /// Makes a call without memory, for which a table can choose.
  [[nodiscard]] cordma::detail::collective_call call_without_memory() const;

  bool operator==(const collective_case&) const = default;
};

}  // namespace perf
