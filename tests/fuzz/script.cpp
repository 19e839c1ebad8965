#include "script.hpp"

#include <cstdio>
#include <cstdlib>

extern "C" const char* __asan_default_options();

/// Coroutines have their frames on the heap, and each stack frame in a fake one costs a third.
extern "C" const char* __asan_default_options() { return "detect_stack_use_after_return=0"; }

namespace cordma::fuzz {

void must(bool holds, const char* what) noexcept {
  if (holds) return;
  std::fprintf(stderr, "violated: %s\n", what);
  std::abort();
}

}  // namespace cordma::fuzz
