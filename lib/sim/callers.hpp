#pragma once

#include "symbol_names.hpp"

namespace cordma::sim::detail {

/// Returns the name of a function that calls; it is looked up once.
const symbol_name& name_of(const void* address);

/// Returns the first caller outside of the language's library; null: there is none.
/// \param returns_to  where the call returns to that is asked about
const symbol_name* caller_behind(const void* returns_to);

}  // namespace cordma::sim::detail
