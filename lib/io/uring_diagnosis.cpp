#include "uring_diagnosis.hpp"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>

namespace cordma {

uring_surroundings look_around() noexcept {
  uring_surroundings here;
  const int fd = ::open("/proc/sys/kernel/io_uring_disabled", O_RDONLY | O_CLOEXEC);
  if (fd >= 0) {
    char digit[2] = {};
    if (::read(fd, digit, 1) == 1) here.disabled = std::atoi(digit);
    ::close(fd);
  }
  rlimit limit{};
  if (::getrlimit(RLIMIT_MEMLOCK, &limit) == 0) here.memlock_bytes = limit.rlim_cur;
  return here;
}

namespace {

const char* cause_of_eperm(int disabled) noexcept {
  if (disabled == 2) {
    return "/proc/sys/kernel/io_uring_disabled is 2: forbidden to all; "
           "set it to 0 (sysctl kernel.io_uring_disabled=0)";
  }
  if (disabled == 1) {
    return "/proc/sys/kernel/io_uring_disabled is 1: forbidden to the unprivileged; set it to 0, "
           "or join the group of kernel.io_uring_group, or run with CAP_SYS_ADMIN";
  }
  return "a seccomp filter forbids io_uring (containers often do by default); allow "
         "io_uring_setup, io_uring_enter and io_uring_register in its profile "
         "(docker: --security-opt seccomp=PROFILE)";
}

}  // namespace

failure diagnose_uring(int errno_value, const uring_surroundings& here) noexcept {
  char text[240] = "";
  switch (errno_value) {
    case EPERM:
    case EACCES:
      return errno_failure(errno_value, "io_uring_setup", {}, cause_of_eperm(here.disabled));
    case ENOSYS:
      return errno_failure(errno_value, "io_uring_setup", {},
                           "this kernel is without io_uring, or a seccomp filter hides it; "
                           "use Linux 5.13 or later, or allow io_uring_setup in the filter");
    case ENOMEM:
      std::snprintf(text, sizeof text,
                    "before Linux 5.12 a ring counts as locked memory, and RLIMIT_MEMLOCK is "
                    "%" PRIu64 " KiB; raise it (ulimit -l unlimited) or ask for fewer ring_entries",
                    here.memlock_bytes / 1024);
      return errno_failure(errno_value, "io_uring_setup", {}, text);
    case EINVAL:
      return errno_failure(errno_value, "io_uring_setup", {},
                           "ring_entries is 0, or this kernel is older than Linux 5.13");
    case EMFILE:
      return errno_failure(errno_value, "io_uring_setup", {},
                           "no file descriptor is left; raise RLIMIT_NOFILE (ulimit -n)");
    default: return errno_failure(errno_value, "io_uring_setup");
  }
}

}  // namespace cordma
