#include <cerrno>
#include <cstddef>
#include <cstring>

#include <sys/types.h>

// The private jemalloc calls these functions instead of reading the program's environment and
// /etc/malloc.conf: both are for the program's own malloc.

extern "C" {

/// Runs before main, from jemalloc's constructor.
[[gnu::visibility("hidden")]] const char* cordma_jemalloc_getenv(const char* name) {
  // Freed memory goes back to the hooks, so that trim() finds it. Every call names its cache. Only
  // the arenas that the library makes are needed.
  if (std::strcmp(name, "MALLOC_CONF") == 0)
    return "retain:false,tcache:false,narenas:1,tcache_max:1048576,tcache_nslots_large:3";
  return nullptr;
}

[[gnu::visibility("hidden")]] ssize_t cordma_jemalloc_readlink(const char*, char*, std::size_t) {
  errno = ENOENT;
  return -1;
}

}  // extern "C"
