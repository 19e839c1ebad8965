#pragma once

#include <cordma/base/time.hpp>

#include <string>

namespace cordma {

/// Returns the length in milliseconds: "5000 ms", "0.05 ms".
std::string to_text(time_span length);

}  // namespace cordma
