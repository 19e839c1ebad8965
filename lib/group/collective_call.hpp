#pragma once

#include <cordma/memory/slice.hpp>

#include <cstddef>
#include <cstdint>
#include <span>

namespace cordma::detail {

enum class collective_kind : std::uint8_t {
  barrier,
  broadcast,
  scatter,
  gather,
  all_gather,
  reduce,
  all_reduce,
  reduce_scatter,
  all_to_all,
  scan,
};
inline constexpr std::size_t collective_kinds = 10;
[[nodiscard]] const char* to_string(collective_kind kind) noexcept;

/// Combines elements: into[i] = left[i] ∘ right[i]. `into` may be one of the two.
struct reducer {
  using function = void (*)(std::byte* into, const std::byte* left, const std::byte* right,
                            std::size_t count, const void* user) noexcept;
  function combine = nullptr;
  const void* user = nullptr;  ///< The program's own operation.
  std::size_t element_bytes = 1;
  std::uint16_t name = 0;  ///< Names type and operation; the ranks must agree.
};

/// The lengths of blocks, one a rank, that lie in the order of ranks without gaps.
struct block_sizes {
  std::size_t each = 0;               ///< Length of every block, while `of` is empty.
  std::span<const std::size_t> of{};  ///< Length of each block; as many as there are ranks.
  [[nodiscard]] std::size_t at(unsigned rank) const noexcept {
    return of.empty() ? each : of[rank];
  }
};

/// The arguments of one collective operation, on one rank. `in` and `out` are the same memory, or
/// do not overlap; in place is as each kind says.
///
/// | kind | in | out | in place |
/// | --- | --- | --- | --- |
/// | barrier | | | |
/// | broadcast | | the data, on all ranks; `root`'s are sent | always |
/// | scatter | `root`'s blocks; else empty | this rank's block | root: `out` is its block of `in` |
/// | gather | this rank's block | `root`'s blocks; else empty | root: `in` is its block of `out` |
/// | all_gather | this rank's block | all blocks | `in` is this rank's block of `out` |
/// | reduce | elements | `root`'s result; else empty | root: `in` is `out` |
/// | all_reduce, scan | elements | the result | `in` is `out` |
/// | reduce_scatter | all blocks | this rank's block of the result | `out` is its block of `in` |
/// | all_to_all | a block for each rank | a block from each rank | `in` is `out`, with equal sizes
/// |
///
/// A reduce_scatter in place may change the other blocks of `in`.
struct collective_call {
  collective_kind kind = collective_kind::barrier;
  unsigned root = 0;
  const_local_mr_slice in{};
  local_mr_slice out{};
  /// Blocks of scatter, gather, all_gather, reduce_scatter; blocks that this rank sends in an
  /// all_to_all. In scatter and gather, ranks but the root know their own alone: there `each` is
  /// that, and `of` is empty.
  block_sizes blocks{};
  block_sizes received{};  ///< Blocks that this rank receives in an all_to_all.
  /// Blocks may differ in length, and have `of`: equal on all ranks, since algorithms depend on it.
  bool is_uneven = false;
  const reducer* reduction = nullptr;
  /// The result of a reduction depends on the number of ranks alone: not on lengths, hosts, or the
  /// choice of algorithms.
  bool is_reproducible = false;

  /// Returns the length by which the table chooses, equal on all ranks: of a block (scatter,
  /// gather, all_to_all), else of all data. Uneven blocks that not all ranks know count as 0.
  [[nodiscard]] std::size_t size_bytes(unsigned ranks) const noexcept;
  [[nodiscard]] std::size_t element_bytes() const noexcept {
    return reduction == nullptr ? 1 : reduction->element_bytes;
  }
  /// Checks the arguments against each other, on one rank.
  /// \errors errc::out_of_range: `root`. errc::wrong_length: memory, or a list of lengths; names
  ///   both lengths.
  void check(unsigned rank, unsigned ranks) const;
};

/// Returns the length of the blocks of the ranks from `first` to before `last`.
[[nodiscard]] std::size_t bytes_of(const block_sizes& blocks, unsigned first,
                                   unsigned last) noexcept;

}  // namespace cordma::detail
