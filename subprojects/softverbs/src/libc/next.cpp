#include "libc/next.hpp"

#include <dlfcn.h>

namespace softverbs::libc {

namespace {

template <function_name... Names>
void search_all() noexcept {
  (static_cast<void>(search_next<Names>()), ...);
}

/// Finds all functions early: a signal handler may be the first to call one, and must not search.
[[gnu::constructor]] void search_when_loaded() noexcept {
  search_all<"open", "open64", "__open_2", "__open64_2", "openat", "openat64", "__openat_2",
             "__openat64_2", "fstat", "fstat64", "__fxstat", "__fxstat64", "write", "close", "dup",
             "dup2", "dup3", "fcntl", "fcntl64", "close_range", "closefrom", "access", "eaccess",
             "euidaccess", "faccessat", "stat", "stat64", "lstat", "lstat64", "__xstat",
             "__xstat64", "__lxstat", "__lxstat64", "fstatat", "fstatat64", "__fxstatat",
             "__fxstatat64", "statx", "dlopen">();
}

}  // namespace

void* find_next(const char* name) noexcept {
  const int saved = errno;
  void* const found = ::dlsym(RTLD_NEXT, name);
  errno = saved;
  return found;
}

}  // namespace softverbs::libc
