#include "abi/real_library.hpp"

#include "node/fork_mutex.hpp"
#include "wire/no_cancellation.hpp"

#include <dlfcn.h>

#include <mutex>
#include <utility>

namespace softverbs::real {

namespace {

/// A fork waits for a thread that loads the library: no thread would finish the load in the child.
fork_mutex loading;
void* library = nullptr;  // Under `loading`, like is_loaded.
bool is_loaded = false;

void* open_library() noexcept {
  // Not dlopen: libsoftverbs_cm.so has one that answers with softverbs.
  void* const handle = ::dlmopen(LM_ID_BASE, "libibverbs.so.1", RTLD_NOW | RTLD_LOCAL);
  // softverbs may be installed under that name: it would forward to itself for ever.
  return handle != nullptr && ::dlsym(handle, "softverbs_reset") == nullptr ? handle : nullptr;
}

}  // namespace

fork_mutex listing;  // Newer than `loading`, which is acquired under it.

void* symbol(const char* name, const char* version) noexcept {
  const no_cancellation wholly;
  const std::lock_guard lock{loading};
  if (!std::exchange(is_loaded, true)) library = open_library();
  return library != nullptr ? ::dlvsym(library, name, version) : nullptr;
}

}  // namespace softverbs::real
