#pragma once

#include <cstdlib>
#include <cstring>

namespace softverbs::libc {

[[nodiscard]] inline bool environment_says(const char* name, const char* value) noexcept {
  const char* const said = std::getenv(name);
  return said != nullptr && std::strcmp(said, value) == 0;
}

/// SOFTVERBS=off: the program is to see what it would see without softverbs.
[[nodiscard]] inline bool is_off() noexcept { return environment_says("SOFTVERBS", "off"); }

}  // namespace softverbs::libc
