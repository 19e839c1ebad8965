#pragma once

#include "group/algorithms/algorithms.hpp"
#include "group/collective_call.hpp"
#include "group/exchange.hpp"

#include <cordma/coro/task.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

// The table may be changed by text, as in
//
//     all_reduce=ring@64K.., broadcast=binomial, all_to_all=bruck@..512:16.., segment=1M
//
// Commas or blanks separate changes. A change is KIND=ALGORITHM, for all sizes and numbers of ranks
// or, behind `@` and `:`, for the bytes and ranks in a range. A range is FIRST..LAST, both
// included; either may be missing. A number may end in K, M or G, powers of 1024. `segment` is the
// bytes of a segment. The first change that fits a call counts; then come the rows that there are
// anyway. An algorithm is passed over where it cannot run: one for blocks of one length, for
// several hosts, or one whose result is not reproducible.

namespace cordma::detail {

/// An algorithm's name, and where it can run.
struct algorithm {
  enum class host_need : std::uint8_t { none, two_levels, regular };

  collective_kind kind;
  const char* name;
  algorithm_function* run;
  bool is_reproducible = true;
  bool takes_uneven = true;
  host_need hosts = host_need::none;
};
/// Returns all algorithms, by kinds.
[[nodiscard]] std::span<const algorithm> algorithms() noexcept;
/// Returns true if the algorithm can run a call of its kind. \param hosts  null: none are known.
[[nodiscard]] bool can_run(const algorithm& a, const host_map* hosts,
                           const collective_call& call) noexcept;

/// Chooses the algorithm of each call. All ranks of a group have the same table.
class algorithm_table {
 public:
  struct row {
    const algorithm* chosen = nullptr;
    std::size_t bytes_min = 0;  ///< The length is `collective_call::size_bytes`.
    std::size_t bytes_max = std::numeric_limits<std::size_t>::max();
    unsigned ranks_min = 0;
    unsigned ranks_max = std::numeric_limits<unsigned>::max();
  };
  static constexpr std::size_t segment_bytes_min = 64;
  static constexpr std::size_t segment_bytes_max = std::size_t(1) << 30;

  algorithm_table() : algorithm_table{std::string_view{}} {}
  /// \errors EINVAL: a change that is none; names it, and what there is.
  explicit algorithm_table(std::string_view changes);

  /// Returns this table behind a row that chooses `a` wherever it can run.
  [[nodiscard]] algorithm_table with(const algorithm& a) const;

  [[nodiscard]] const algorithm& choose(const exchange& x, const collective_call& call) const {
    return choose(x.size(), x.hosts(), call);
  }
  [[nodiscard]] const algorithm& choose(unsigned ranks, const host_map* hosts,
                                        const collective_call& call) const;
  [[nodiscard]] std::span<const row> rows() const noexcept { return rows_; }
  /// Returns the length of a transfer: longer messages go in several.
  [[nodiscard]] std::size_t segment_bytes() const noexcept { return segment_bytes_; }
  /// Returns the table, a line for each row. Equal tables have equal texts.
  [[nodiscard]] std::string to_string() const;

 private:
  std::vector<row> rows_;  // The first that fits counts.
  std::size_t segment_bytes_ = std::size_t(256) << 10;
};

/// Returns the table with a program's changes; after these count those of CORDMA_COLLECTIVES.
/// \errors EINVAL: a change that is none. Names the variable and its text, if it is there.
algorithm_table configured_algorithms(std::string_view changes);

/// Runs the algorithm that the table has for the call. `call` and `table` live until the end.
/// \errors those of `collective_call::check`. errc::limit_exceeded: more segments than steps.
///   Awaiting: why the exchange failed.
task<> run(exchange& x, const collective_call& call, const algorithm_table& table);
/// Runs a call whose arguments fit each other.
task<> run_unchecked(exchange& x, const collective_call& call, const algorithm_table& table);

}  // namespace cordma::detail
