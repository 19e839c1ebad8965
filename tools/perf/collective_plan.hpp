#pragma once

#include "collective_case.hpp"
#include "group/host_map.hpp"

#include <cordma/queue/completion.hpp>

#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace perf {

/// The command line of this mode.
struct collectives_options {
  std::vector<collective_kind> operations{};  ///< empty: all that `algorithms` are for
  std::vector<std::uint64_t> sizes{};
  std::vector<std::string> algorithms{};  ///< empty: the table's choice
  bool is_tuning = false;
  unsigned ranks = 0;  ///< processes to start here; 0: a launcher started them
  cordma::completion_mode mode = cordma::completion_mode::event;
  std::chrono::milliseconds duration{200};  ///< for each operation, length and algorithm
  std::uint64_t memory_bytes_max = 0;       ///< on each rank
  std::string device{};
  bool prints_json = false;
  std::string json_file{};

  static constexpr unsigned ranks_min = 2;
  static constexpr unsigned ranks_max = 64;
};

/// \errors std::invalid_argument: the first thing that cannot be, with the way out.
void check(const collectives_options& o);

/// One case, and the algorithms by which it is measured in turns: the bytes in which rank 0 tells
/// the others.
struct planned_case {
  std::uint64_t size_bytes = 0;
  std::uint64_t algorithms = 0;  ///< a bit for each of `detail::algorithms()`
  std::uint32_t kind = 0;
  std::uint32_t reserved = 0;

  [[nodiscard]] collective_case of(unsigned ranks) const noexcept {
    return {.kind = collective_kind(kind), .size_bytes = size_bytes, .ranks = ranks};
  }
  [[nodiscard]] std::vector<const algorithm*> chosen() const;
};

/// The group for which a plan is made.
struct planned_ranks {
  unsigned count = 1;
  const cordma::detail::host_map* hosts = nullptr;
  const cordma::detail::algorithm_table& table;
};

/// Makes the plan on rank 0.
/// \errors std::invalid_argument: an algorithm that cannot run on these ranks; more memory than
///   there may be; nothing to choose between.
std::vector<planned_case> make_plan(const collectives_options& o, const planned_ranks& with);

/// Checks a plan that another rank made. \errors std::runtime_error: it has no sense.
void check(std::span<const planned_case> plan, unsigned ranks);

}  // namespace perf
