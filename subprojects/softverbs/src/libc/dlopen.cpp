#include "libc/environment.hpp"
#include "libc/next.hpp"

#include <dlfcn.h>

#include <atomic>
#include <cstdio>
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

/// A library that is opened so takes names from its own libraries first, ahead of softverbs'.
[[gnu::noinline]] void warn_of_deep_binding(const char* path) noexcept {
  static constinit std::atomic<bool> has_warned{false};
  if (is_off() || has_warned.exchange(true, std::memory_order_relaxed)) return;
  const int saved = errno;
  std::fprintf(stderr,
               "softverbs: %s is opened with RTLD_DEEPBIND: if it or a library that it loads uses "
               "libibverbs or librdmacm, softverbs does not serve it; open it without that flag\n",
               path);
  errno = saved;
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
  const bool is_verbs = is_libibverbs(path);
  if ((flags & RTLD_DEEPBIND) != 0 && path != nullptr && !is_verbs) warn_of_deep_binding(path);
  return next_dlopen(is_verbs ? "libsoftverbs.so.0" : path, flags);
}

}  // extern "C"
