#include "rdma_cm.hpp"

#include <catch2/catch.hpp>

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

namespace {

constexpr const char* soft0 = "/dev/infiniband/soft0";
constexpr const char* absent = "/dev/infiniband/no-such-device";

/// Checks that `call` describes soft0 as a character device that all may use. `call` must fail for
/// a path of no file, and for soft0 where softverbs is off.
template <class Call>
void check_stat(const char* name, Call call) {
  INFO(name);
  struct stat is{};
  CHECK(call(soft0, &is) == 0);
  CHECK(is.st_mode == (S_IFCHR | 0666));
  CHECK(call("/", &is) == 0);
  CHECK(S_ISDIR(is.st_mode));
  errno = 0;
  CHECK(call(absent, &is) == -1);
  CHECK(errno == ENOENT);
  CHECK(rdma_cm::in_child([call] {
          ::setenv("SOFTVERBS", "off", 1);
          struct stat none{};
          return call(soft0, &none) == -1 && errno == ENOENT;
        }) == 0);
}

}  // namespace

TEST_CASE("every form of access says that soft0's file is readable and writable", "[libc]") {
  for (const char* name : {"access", "eaccess", "euidaccess"}) {
    INFO(name);
    auto* const call = rdma_cm::libc<int(const char*, int)>(name);
    CHECK(call(soft0, F_OK) == 0);
    CHECK(call(soft0, R_OK | W_OK) == 0);
    errno = 0;
    CHECK(call(soft0, X_OK) == -1);
    CHECK(errno == EACCES);
    CHECK(call("/", R_OK) == 0);
    CHECK(call(absent, F_OK) == -1);
    CHECK(errno == ENOENT);
  }
  CHECK(::faccessat(AT_FDCWD, soft0, R_OK | W_OK, 0) == 0);
  CHECK(::faccessat(AT_FDCWD, absent, R_OK, 0) == -1);
  CHECK(::faccessat(AT_FDCWD, "/", R_OK, 0) == 0);
  CHECK(rdma_cm::in_child([] {
          ::setenv("SOFTVERBS", "off", 1);
          return ::access(soft0, F_OK) == -1 && errno == ENOENT;
        }) == 0);
}

TEST_CASE("every form of stat says that soft0's file is a character device", "[libc]") {
  constexpr int version = 1;  // The version of struct stat.
  for (const char* name : {"stat", "stat64", "lstat", "lstat64"})
    check_stat(name, rdma_cm::libc<int(const char*, struct stat*)>(name));
  for (const char* name : {"__xstat", "__xstat64", "__lxstat", "__lxstat64"}) {
    auto* const call = rdma_cm::libc<int(int, const char*, struct stat*)>(name);
    check_stat(name, [call](const char* path, struct stat* to) { return call(version, path, to); });
  }
  for (const char* name : {"fstatat", "fstatat64"}) {
    auto* const call = rdma_cm::libc<int(int, const char*, struct stat*, int)>(name);
    check_stat(name,
               [call](const char* path, struct stat* to) { return call(AT_FDCWD, path, to, 0); });
  }
  for (const char* name : {"__fxstatat", "__fxstatat64"}) {
    auto* const call = rdma_cm::libc<int(int, int, const char*, struct stat*, int)>(name);
    check_stat(name, [call](const char* path, struct stat* to) {
      return call(version, AT_FDCWD, path, to, 0);
    });
  }
  check_stat("statx", [](const char* path, struct stat* to) {
    struct statx is{};
    const int result = ::statx(AT_FDCWD, path, 0, STATX_TYPE | STATX_MODE, &is);
    to->st_mode = is.stx_mode;
    return result;
  });
}
