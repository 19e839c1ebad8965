#include "link/hints.hpp"

#include "wire/no_cancellation.hpp"

#include <unistd.h>

#include <atomic>
#include <cstdarg>
#include <cstdio>

namespace softverbs {

void warn_once(hint what, const char* format, ...) noexcept {
  static constinit std::atomic<unsigned> told{0};
  const unsigned bit = 1u << static_cast<unsigned>(what);
  if ((told.fetch_or(bit, std::memory_order_relaxed) & bit) != 0) return;
  char text[320];
  va_list arguments;
  va_start(arguments, format);
  const int length = std::vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  const no_cancellation wholly;
  // One write, without stdio: another thread of a program that forks may hold the locks of stdio.
  if (length > 0 && static_cast<unsigned>(length) < sizeof text)
    (void)!::write(STDERR_FILENO, text, static_cast<unsigned>(length));
}

}  // namespace softverbs
