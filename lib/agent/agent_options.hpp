#pragma once

#include <cordma/agent/agent_options.hpp>

namespace cordma {

/// \errors errc::limit_exceeded: the first value out of range, with its name and limits.
///   errc::not_supported: options that exclude each other.
void check(const agent_options& options);

}  // namespace cordma
