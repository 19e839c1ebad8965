#pragma once

#include "group/byte_memory.hpp"
#include "group/reductions.hpp"

#include <span>

namespace model {

/// A collective operation of all ranks, with data by which the result can be told.
struct trial {
  collective_kind kind{};
  unsigned ranks = 1;
  std::size_t elements = 0;  ///< In a block where there are blocks; else in all.
  unsigned root = 0;
  bool is_aliased = false;
  bool is_uneven = false;
  bool is_reproducible = false;
  element_type type = element_type::uint16;
  reduction operation = reduction::sum;
  const reducer* own = nullptr;  ///< A program's operation; null: `operation`.
  const host_map* hosts = nullptr;
  unsigned seed = 1;
  /// The value of all elements of a rank, for each rank; empty: random values. For float32.
  std::span<const float> values{};

  /// Returns the bytes of a block that a rank sends to another, or has.
  [[nodiscard]] std::size_t block_bytes(unsigned from, unsigned to) const;
  [[nodiscard]] std::string to_string() const;
};

/// Runs the trial. Returns what is wrong with its outcome; empty: nothing.
std::string problem_of(const trial& t, const algorithm_table& table);

/// Returns what is wrong with an algorithm on up to 17 ranks, with messages around the length of a
/// segment, in and out of place. `changes` are more of the table's.
std::string problem_of(collective_kind kind, const std::string& name,
                       const std::string& changes = "segment=64");

/// Makes a trial fail after several numbers of events. Returns what is wrong with that.
std::string problem_of_failures(const trial& t, const algorithm_table& table);

/// Destroys the operations of a trial after several numbers of events. Returns what is wrong.
std::string problem_of_destruction(const trial& t, const algorithm_table& table);

/// Returns how many allocations the algorithm makes when the same trial ran before.
std::uint64_t allocations_of(const trial& t, const algorithm_table& table);

/// Returns how many ranks end their operation before the last one begins.
unsigned ended_early(const trial& t, unsigned last, const algorithm_table& table);

/// Returns the outcome of one trial on each rank.
std::vector<std::vector<std::byte>> results_of(const trial& t, const algorithm_table& table);

}  // namespace model
