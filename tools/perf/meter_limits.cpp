#include "meter_limits.hpp"

#include <algorithm>

namespace perf {
namespace {

std::uint64_t share_of(std::uint64_t all, std::uint32_t index, std::uint32_t parts) noexcept {
  return all / parts + (index < all % parts ? 1 : 0);
}

}  // namespace

meter::limits limits_of(const job& what, std::uint32_t index, std::uint32_t parts,
                        const std::atomic<bool>* is_stopped) noexcept {
  meter::limits until{.is_stopped = is_stopped};
  if (what.operations != 0) {
    until.operations = share_of(what.operations, index, parts);
  } else if (!what.is_endless) {
    until.longest = what.duration;
  }
  if (what.rate != 0)
    until.pace = pace_options{
        .per_second = what.rate / parts, .gaps = what.gaps, .seed = std::uint64_t{index} + 1};
  return until;
}

meter::limits warm_up_of(const job& what, meter::limits until) noexcept {
  if (what.warm_up) {
    until.operations = what.warm_up->count() == 0 ? 0 : meter::unlimited;
    until.longest = *what.warm_up;
  } else {
    until.operations = std::min(warm_up_operations, until.operations);
    until.longest = std::min<std::chrono::nanoseconds>(warm_up_time, until.longest);
  }
  return until;
}

}  // namespace perf
