#include "libc/channel_table.hpp"
#include "libc/next.hpp"
#include "libc/rdma_cm_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <cstdarg>

// open, fstat and write. Labels give the functions their names: the headers' own declarations of
// these names depend on macros (large files, fortification) and differ in noexcept.

using namespace softverbs::libc;

namespace {

using open_function = int(const char*, int, ...);
using open_at_function = int(int, const char*, int, ...);

[[nodiscard]] bool has_mode(int flags) noexcept {
  return (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE;
}

template <function_name Name>
int open_file(const char* path, int flags, mode_t mode) {
  return is_rdma_cm(path) ? open_rdma_cm(flags) : next<Name, open_function>()(path, flags, mode);
}

template <function_name Name>
int open_file_at(int folder, const char* path, int flags, mode_t mode) {
  return is_rdma_cm(path) ? open_rdma_cm(flags)
                          : next<Name, open_at_function>()(folder, path, flags, mode);
}

// The fortified forms take no mode, and end the program if the flags want one.

template <function_name Name>
int open_file(const char* path, int flags) {
  return is_rdma_cm(path) ? open_rdma_cm(flags) : next<Name, int(const char*, int)>()(path, flags);
}

template <function_name Name>
int open_file_at(int folder, const char* path, int flags) {
  return is_rdma_cm(path) ? open_rdma_cm(flags)
                          : next<Name, int(int, const char*, int)>()(folder, path, flags);
}

/// Makes the result of fstat() on a channel that of the kernel's file, as far as anybody looks.
int describe(int fd, int result, struct stat* to) noexcept {
  if (result == 0 && channels.has(fd)) {
    constexpr mode_t all_may_use = 0666;
    to->st_mode = S_IFCHR | all_may_use;
    to->st_rdev = rdma_cm_device();
  }
  return result;
}

template <function_name Name>
int stat_of(int fd, struct stat* to) noexcept {
  return describe(fd, next<Name, int(int, struct stat*)>()(fd, to), to);
}

template <function_name Name>
int stat_of(int version, int fd, struct stat* to) noexcept {
  return describe(fd, next<Name, int(int, int, struct stat*)>()(version, fd, to), to);
}

/// The channel that find_named() found for this thread's write: a command names one descriptor at
/// most.
constinit thread_local channel_record* named = nullptr;

/// The channel lives until the write that asks for it returns. Releases nothing: the machine holds
/// its mutex, which it takes to close a channel, too.
softverbs_cm_channel* find_named(int fd) noexcept {
  if (named == nullptr) named = channels.acquire(fd);
  return named != nullptr ? named->channel() : nullptr;
}

/// Releases `named` when the write ends, also if it ends by cancellation.
struct named_until_end {
  named_until_end() = default;
  named_until_end(const named_until_end&) = delete;
  named_until_end& operator=(const named_until_end&) = delete;
  ~named_until_end() {
    if (channel_record* const record = std::exchange(named, nullptr)) record->release();
  }
};

}  // namespace

extern "C" {

int sv_open(const char* path, int flags, ...) __asm__("open");
int sv_open64(const char* path, int flags, ...) __asm__("open64");
int sv_open_2(const char* path, int flags) __asm__("__open_2");
int sv_open64_2(const char* path, int flags) __asm__("__open64_2");
int sv_openat(int folder, const char* path, int flags, ...) __asm__("openat");
int sv_openat64(int folder, const char* path, int flags, ...) __asm__("openat64");
int sv_openat_2(int folder, const char* path, int flags) __asm__("__openat_2");
int sv_openat64_2(int folder, const char* path, int flags) __asm__("__openat64_2");
int sv_fstat(int fd, struct stat* to) noexcept __asm__("fstat");
int sv_fstat64(int fd, struct stat* to) noexcept __asm__("fstat64");
int sv_fxstat(int version, int fd, struct stat* to) noexcept __asm__("__fxstat");
int sv_fxstat64(int version, int fd, struct stat* to) noexcept __asm__("__fxstat64");
ssize_t sv_write(int fd, const void* data, std::size_t bytes) __asm__("write");

// Reads the optional argument, as libc does.
#define SV_MODE_AFTER(flags)     \
  mode_t mode = 0;               \
  if (has_mode(flags)) {         \
    va_list rest;                \
    va_start(rest, flags);       \
    mode = va_arg(rest, mode_t); \
    va_end(rest);                \
  }

int sv_open(const char* path, int flags, ...) {
  SV_MODE_AFTER(flags)
  return open_file<"open">(path, flags, mode);
}
int sv_open64(const char* path, int flags, ...) {
  SV_MODE_AFTER(flags)
  return open_file<"open64">(path, flags, mode);
}
int sv_openat(int folder, const char* path, int flags, ...) {
  SV_MODE_AFTER(flags)
  return open_file_at<"openat">(folder, path, flags, mode);
}
int sv_openat64(int folder, const char* path, int flags, ...) {
  SV_MODE_AFTER(flags)
  return open_file_at<"openat64">(folder, path, flags, mode);
}

#undef SV_MODE_AFTER

int sv_open_2(const char* path, int flags) { return open_file<"__open_2">(path, flags); }
int sv_open64_2(const char* path, int flags) { return open_file<"__open64_2">(path, flags); }
int sv_openat_2(int folder, const char* path, int flags) {
  return open_file_at<"__openat_2">(folder, path, flags);
}
int sv_openat64_2(int folder, const char* path, int flags) {
  return open_file_at<"__openat64_2">(folder, path, flags);
}

int sv_fstat(int fd, struct stat* to) noexcept { return stat_of<"fstat">(fd, to); }
int sv_fstat64(int fd, struct stat* to) noexcept { return stat_of<"fstat64">(fd, to); }
int sv_fxstat(int version, int fd, struct stat* to) noexcept {
  return stat_of<"__fxstat">(version, fd, to);
}
int sv_fxstat64(int version, int fd, struct stat* to) noexcept {
  return stat_of<"__fxstat64">(version, fd, to);
}

ssize_t sv_write(int fd, const void* data, std::size_t bytes) {
  using write_function = ssize_t(int, const void*, std::size_t);
  if (channels.has(fd)) {
    const channel_use use{fd};
    const named_until_end and_named;
    if (use) return softverbs_cm_write(use.channel(), data, bytes, find_named);
  }
  return next<"write", write_function>()(fd, data, bytes);
}

}  // extern "C"
