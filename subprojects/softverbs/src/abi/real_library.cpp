#include "abi/real_library.hpp"

#include "node/fork_mutex.hpp"

#include <dlfcn.h>

#include <mutex>
#include <utility>

namespace softverbs::real {

namespace {

/// A fork waits for whoever loads the library: nobody would end that in the child.
fork_mutex loading;
void* library = nullptr;  // Under it, as is:
bool is_loaded = false;

void* open_library() noexcept {
  void* const handle = ::dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL);
  // Somebody may have installed us under that name: we would forward to ourselves for ever.
  return handle != nullptr && ::dlsym(handle, "softverbs_reset") == nullptr ? handle : nullptr;
}

}  // namespace

fork_mutex listing;  // Newer than `loading`, which is taken under it.

void* symbol(const char* name, const char* version) noexcept {
  const std::lock_guard lock{loading};
  if (!std::exchange(is_loaded, true)) library = open_library();
  return library != nullptr ? ::dlvsym(library, name, version) : nullptr;
}

}  // namespace softverbs::real
