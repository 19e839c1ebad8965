#include "abi/real_library.hpp"

#include <dlfcn.h>

namespace softverbs::real {

namespace {

void* open_library() noexcept {
  void* const handle = ::dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL);
  // Somebody may have installed us under that name: we would forward to ourselves for ever.
  return handle != nullptr && ::dlsym(handle, "softverbs_reset") == nullptr ? handle : nullptr;
}

}  // namespace

void* symbol(const char* name, const char* version) noexcept {
  static void* const library = open_library();
  return library != nullptr ? ::dlvsym(library, name, version) : nullptr;
}

}  // namespace softverbs::real
