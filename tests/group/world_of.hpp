#pragma once

#include "group/group_context.hpp"
#include "group/world.hpp"

namespace cordma::test {

/// Returns what a group's rank knows of all ranks.
inline detail::world& world_of(const group& g) { return detail::group_context::of(g)->whole(); }

}  // namespace cordma::test
