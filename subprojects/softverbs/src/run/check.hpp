#pragma once

#include "run/libraries.hpp"

#include <string>

namespace softverbs::run {

/// Prints what softverbs would serve, and what is in the way of `program`, or of any program if it
/// is empty. Returns the number of things in the way.
int check(const libraries&, const std::string& program);

}  // namespace softverbs::run
