#pragma once

#include "cell.hpp"

#include <chrono>
#include <span>
#include <string>
#include <vector>

namespace walk {

/// Walks them all, pair after pair, each in processes of its own. The first failures, each with
/// its walk, behind which another pair goes on.
std::vector<std::string> walk_all(std::span<const cell> walks, std::chrono::milliseconds patience);

}  // namespace walk
