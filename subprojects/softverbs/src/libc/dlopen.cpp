#include "libc/environment.hpp"
#include "libc/next.hpp"

#include <string_view>

// Programs that open libibverbs themselves find softverbs, as those that are linked with it do.

using namespace softverbs::libc;

namespace {

[[nodiscard]] bool is_libibverbs(const char* path) noexcept {
  if (path == nullptr) return false;
  const std::string_view all{path};
  const std::string_view file = all.substr(all.rfind('/') + 1);
  constexpr std::string_view name = "libibverbs.so";
  return file.starts_with(name) && (file.size() == name.size() || file[name.size()] == '.') &&
         !is_off();
}

}  // namespace

extern "C" {

void* sv_dlopen(const char* path, int flags) __asm__("dlopen");

/// Must be compiled to a jump into the next dlopen: libc takes its caller for the library that
/// asks, whose RPATH and RUNPATH it searches.
void* sv_dlopen(const char* path, int flags) {
  using dlopen_function = void*(const char*, int);
  void* found = found_next<"dlopen">.load(std::memory_order_relaxed);
  if (found == nullptr) found = search_next<"dlopen">();
  auto* const next_dlopen = reinterpret_cast<dlopen_function*>(found);
  return next_dlopen(is_libibverbs(path) ? "libsoftverbs.so.0" : path, flags);
}

}  // extern "C"
