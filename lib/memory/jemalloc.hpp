#pragma once

#include "base/failures.hpp"

#include <jemalloc/jemalloc.h>

#include <cstddef>

/// jemalloc's non-standard API (jemalloc(3)), from the private or the system's copy.
namespace cordma::jemalloc {

#ifdef CORDMA_SHARED_JEMALLOC
using ::dallocx;
using ::mallctl;
using ::mallocx;
#else
// The private copy has other symbols (jemalloc/localise).
void* mallocx(std::size_t size, int flags) noexcept __asm__("cordma_jemalloc_mallocx");
void dallocx(void* at, int flags) noexcept __asm__("cordma_jemalloc_dallocx");
int mallctl(const char* name, void* old, std::size_t* old_bytes, void* value,
            std::size_t value_bytes) noexcept __asm__("cordma_jemalloc_mallctl");
#endif

/// Checks mallctl's result. \errors `error` with the control's name and the errno.
inline void check(int error, const char* name) {
  if (error != 0) cordma::detail::throw_errno(error, "mallctl", name);
}

template <class Value>
Value get(const char* name) {
  Value value{};
  std::size_t bytes = sizeof value;
  check(mallctl(name, &value, &bytes, nullptr, 0), name);
  return value;
}
template <class Value>
void set(const char* name, Value value) {
  check(mallctl(name, nullptr, nullptr, &value, sizeof value), name);
}
/// Calls a control that has an effect and takes no value.
inline void call(const char* name) { check(mallctl(name, nullptr, nullptr, nullptr, 0), name); }

}  // namespace cordma::jemalloc
