#include "time_text.hpp"

#include <cstdio>

namespace cordma {

std::string to_text(time_span length) {
  char text[32];
  const std::chrono::duration<double, std::milli> ms = duration{length};
  std::snprintf(text, sizeof text, "%.10g ms", ms.count());
  return text;
}

}  // namespace cordma
