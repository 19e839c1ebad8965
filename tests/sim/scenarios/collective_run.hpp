#pragma once

#include "support.hpp"

#include <cordma/group/group.hpp>

namespace cordma::test {

enum class collective {
  barrier,
  broadcast,
  scatter,
  gather,
  all_gather,
  all_gather_uneven,
  all_to_all,
  reduce,
  all_reduce,
  reduce_scatter,
  scan,
  ring,
  scatter_uneven,
  gather_uneven,
  all_to_all_uneven,
  reduce_scatter_uneven,
  from_any,  ///< All ranks send to the root, which does not ask for an order.
  last = from_any
};

/// One operation of all ranks. Element i of rank r begins as `value(r, i)`.
struct collective_call {
  collective kind{};
  std::size_t count = 0;  ///< elements of a block
  unsigned root = 0;
  std::int64_t salt = 0;

  [[nodiscard]] std::int64_t value(unsigned rank, std::size_t i) const {
    return salt + std::int64_t(rank) * 1'000'003 + std::int64_t(i) * 7;
  }
  /// The sum over the ranks before `end`.
  [[nodiscard]] std::int64_t sum(unsigned end, std::size_t i) const {
    std::int64_t all = 0;
    for (unsigned r = 0; r < end; ++r) all += value(r, i);
    return all;
  }
  /// Blocks of an uneven operation.
  [[nodiscard]] std::size_t count_of(unsigned rank) const { return (count + rank) % (count + 1); }
};

collective_call any_collective(const cast& all, unsigned ranks);
/// Runs one operation on one rank and compares the result.
task<> run_collective(const cast& all, group& g, collective_call c);
/// Runs an operation that must succeed.
task<> must_run_collective(const cast& all, group& g, collective_call c);

}  // namespace cordma::test
