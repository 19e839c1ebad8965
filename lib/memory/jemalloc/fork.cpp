#include "../annotations.hpp"

#include <pthread.h>

#include <cstring>

// jemalloc's own handlers have a fork take all its mutexes but one (5.3 and later), so those are
// free in the child. The other mutex protects the tree that says whose an address is. A thread
// holds it while it maps a part of the tree, for addresses of a GiB where none were before.

extern "C" {

using mutex_init = bool(void* mutex, const char* name, unsigned rank, int order);
mutex_init cordma_jemalloc_mutex_init_itself;

namespace {

struct {
  void* mutex;
  const char* name;
  unsigned rank;
  int order;
} constinit tree{};

/// The tree is whole at any time: a part is put in by one store. The child loses at most one that
/// a thread of the parent was making.
void renew_in_child() {
  cordma_jemalloc_mutex_init_itself(tree.mutex, tree.name, tree.rank, tree.order);
}

}  // namespace

/// jemalloc calls this function to make any of its mutexes.
[[gnu::visibility("hidden")]] bool cordma_jemalloc_mutex_init(void* mutex, const char* name,
                                                              unsigned rank, int order) {
  if (std::strcmp(name, "rtree") == 0) tree = {mutex, name, rank, order};
  return cordma_jemalloc_mutex_init_itself(mutex, name, rank, order);
}

[[gnu::visibility("hidden")]] int cordma_jemalloc_atfork(void (*prepare)(), void (*parent)(),
                                                         void (*child)()) {
#ifdef CORDMA_THREAD_SANITIZER
  // ThreadSanitizer ends a program in which a thread holds 64 locks; the arenas have more.
  static_cast<void>(prepare), static_cast<void>(parent), static_cast<void>(child);
  return 0;
#else
  const int error = ::pthread_atfork(prepare, parent, child);
  return error != 0 || tree.mutex == nullptr ? error
                                             : ::pthread_atfork(nullptr, nullptr, &renew_in_child);
#endif
}

}  // extern "C"
