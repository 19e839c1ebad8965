#pragma once

#include "job.hpp"
#include "meter.hpp"

#include <atomic>
#include <cstdint>

namespace perf {

/// Returns the limits of one of the `parts` that do a job together, the one at `index`.
/// \param is_stopped  ends the part early; null: nothing does.
meter::limits limits_of(const job& what, std::uint32_t index, std::uint32_t parts,
                        const std::atomic<bool>* is_stopped) noexcept;
/// Returns the limits of the warm-up before the measurement that has the limits `until`.
meter::limits warm_up_of(const job& what, meter::limits until) noexcept;

}  // namespace perf
