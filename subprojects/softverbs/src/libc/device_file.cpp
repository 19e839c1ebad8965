#include "libc/environment.hpp"
#include "libc/next.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

// The file of soft0, which UCX wants readable and writable before it uses a device. Labels give the
// functions their names, as in files.cpp.

using namespace softverbs::libc;

namespace {

constexpr mode_t all_may_use = S_IFCHR | 0666;

[[nodiscard]] bool is_soft0(const char* path) noexcept {
  return path != nullptr && std::strcmp(path, "/dev/infiniband/soft0") == 0 && !is_off();
}

int check_access(int mode) noexcept {
  if ((mode & X_OK) == 0) return 0;
  errno = EACCES;
  return -1;
}

int describe(struct stat* to) noexcept {
  *to = {};
  to->st_mode = all_may_use;
  to->st_nlink = 1;
  return 0;
}

template <function_name Name>
int access_of(const char* path, int mode) noexcept {
  return is_soft0(path) ? check_access(mode) : next<Name, int(const char*, int)>()(path, mode);
}

template <function_name Name>
int stat_of(const char* path, struct stat* to) noexcept {
  return is_soft0(path) ? describe(to) : next<Name, int(const char*, struct stat*)>()(path, to);
}

template <function_name Name>
int stat_of(int version, const char* path, struct stat* to) noexcept {
  return is_soft0(path) ? describe(to)
                        : next<Name, int(int, const char*, struct stat*)>()(version, path, to);
}

template <function_name Name>
int stat_at(int folder, const char* path, struct stat* to, int flags) noexcept {
  return is_soft0(path)
             ? describe(to)
             : next<Name, int(int, const char*, struct stat*, int)>()(folder, path, to, flags);
}

template <function_name Name>
int stat_at(int version, int folder, const char* path, struct stat* to, int flags) noexcept {
  using function = int(int, int, const char*, struct stat*, int);
  return is_soft0(path) ? describe(to) : next<Name, function>()(version, folder, path, to, flags);
}

}  // namespace

extern "C" {

int sv_access(const char* path, int mode) noexcept __asm__("access");
int sv_eaccess(const char* path, int mode) noexcept __asm__("eaccess");
int sv_euidaccess(const char* path, int mode) noexcept __asm__("euidaccess");
int sv_faccessat(int folder, const char* path, int mode, int flags) noexcept __asm__("faccessat");
int sv_stat(const char* path, struct stat* to) noexcept __asm__("stat");
int sv_stat64(const char* path, struct stat* to) noexcept __asm__("stat64");
int sv_lstat(const char* path, struct stat* to) noexcept __asm__("lstat");
int sv_lstat64(const char* path, struct stat* to) noexcept __asm__("lstat64");
int sv_xstat(int version, const char* path, struct stat* to) noexcept __asm__("__xstat");
int sv_xstat64(int version, const char* path, struct stat* to) noexcept __asm__("__xstat64");
int sv_lxstat(int version, const char* path, struct stat* to) noexcept __asm__("__lxstat");
int sv_lxstat64(int version, const char* path, struct stat* to) noexcept __asm__("__lxstat64");
int sv_fstatat(int folder, const char* path, struct stat* to, int flags) noexcept
    __asm__("fstatat");
int sv_fstatat64(int folder, const char* path, struct stat* to, int flags) noexcept
    __asm__("fstatat64");
int sv_fxstatat(int version, int folder, const char* path, struct stat* to, int flags) noexcept
    __asm__("__fxstatat");
int sv_fxstatat64(int version, int folder, const char* path, struct stat* to, int flags) noexcept
    __asm__("__fxstatat64");
// statx() is a cancellation point in some versions of libc, and so not noexcept.
int sv_statx(int folder, const char* path, int flags, unsigned mask,
             struct statx* to) __asm__("statx");

int sv_access(const char* path, int mode) noexcept { return access_of<"access">(path, mode); }
int sv_eaccess(const char* path, int mode) noexcept { return access_of<"eaccess">(path, mode); }
int sv_euidaccess(const char* path, int mode) noexcept {
  return access_of<"euidaccess">(path, mode);
}
int sv_faccessat(int folder, const char* path, int mode, int flags) noexcept {
  if (is_soft0(path)) return check_access(mode);
  return next<"faccessat", int(int, const char*, int, int)>()(folder, path, mode, flags);
}

int sv_stat(const char* path, struct stat* to) noexcept { return stat_of<"stat">(path, to); }
int sv_stat64(const char* path, struct stat* to) noexcept { return stat_of<"stat64">(path, to); }
int sv_lstat(const char* path, struct stat* to) noexcept { return stat_of<"lstat">(path, to); }
int sv_lstat64(const char* path, struct stat* to) noexcept { return stat_of<"lstat64">(path, to); }
int sv_xstat(int version, const char* path, struct stat* to) noexcept {
  return stat_of<"__xstat">(version, path, to);
}
int sv_xstat64(int version, const char* path, struct stat* to) noexcept {
  return stat_of<"__xstat64">(version, path, to);
}
int sv_lxstat(int version, const char* path, struct stat* to) noexcept {
  return stat_of<"__lxstat">(version, path, to);
}
int sv_lxstat64(int version, const char* path, struct stat* to) noexcept {
  return stat_of<"__lxstat64">(version, path, to);
}
int sv_fstatat(int folder, const char* path, struct stat* to, int flags) noexcept {
  return stat_at<"fstatat">(folder, path, to, flags);
}
int sv_fstatat64(int folder, const char* path, struct stat* to, int flags) noexcept {
  return stat_at<"fstatat64">(folder, path, to, flags);
}
int sv_fxstatat(int version, int folder, const char* path, struct stat* to, int flags) noexcept {
  return stat_at<"__fxstatat">(version, folder, path, to, flags);
}
int sv_fxstatat64(int version, int folder, const char* path, struct stat* to, int flags) noexcept {
  return stat_at<"__fxstatat64">(version, folder, path, to, flags);
}

int sv_statx(int folder, const char* path, int flags, unsigned mask, struct statx* to) {
  if (!is_soft0(path))
    return next<"statx", int(int, const char*, int, unsigned, struct statx*)>()(folder, path, flags,
                                                                                mask, to);
  *to = {};
  to->stx_mask = STATX_TYPE | STATX_MODE | STATX_NLINK;
  to->stx_mode = all_may_use;
  to->stx_nlink = 1;
  return 0;
}

}  // extern "C"
