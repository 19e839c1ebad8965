#pragma once

#include "base/failures.hpp"

#include <jemalloc/jemalloc.h>

#include <cstddef>

#ifndef CORDMA_SHARED_JEMALLOC
// Symbols of the private copy (jemalloc/localise).
extern "C" {
void* cordma_jemalloc_mallocx(std::size_t size, int flags) noexcept;
void cordma_jemalloc_dallocx(void* at, int flags) noexcept;
int cordma_jemalloc_mallctl(const char* name, void* old, std::size_t* old_bytes, void* value,
                            std::size_t value_bytes) noexcept;
}
#endif

/// jemalloc's non-standard API (jemalloc(3)), from the private or the system's copy.
namespace cordma::jemalloc {

#ifndef CORDMA_SHARED_JEMALLOC
inline constexpr auto mallocx = ::cordma_jemalloc_mallocx;
inline constexpr auto dallocx = ::cordma_jemalloc_dallocx;
inline constexpr auto mallctl = ::cordma_jemalloc_mallctl;
#else
inline constexpr auto mallocx = ::mallocx;
inline constexpr auto dallocx = ::dallocx;
inline constexpr auto mallctl = ::mallctl;
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
