#include "uring_diagnosis.hpp"

#include "base/descriptors.hpp"

#include <fcntl.h>
#include <liburing.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
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

/// Returns the memory of a ring: its requests, and two completions and an index for each.
std::uint64_t ring_bytes(unsigned entries) noexcept {
  constexpr std::uint64_t page = 4096;
  constexpr std::uint64_t head = 320;
  const std::uint64_t n = std::bit_ceil(std::clamp(entries, 1u, 32768u));
  const auto pages = [](std::uint64_t bytes) { return (bytes + page - 1) / page * page; };
  return pages(n * sizeof(io_uring_sqe)) +
         pages(head + 2 * n * sizeof(io_uring_cqe) + n * sizeof(std::uint32_t));
}

fixed_text<240> lack(const uring_surroundings& here, unsigned entries) noexcept {
  const std::uint64_t needed = ring_bytes(entries) / 1024;
  char text[240];
  if (here.memlock_bytes == RLIM_INFINITY) {
    std::snprintf(text, sizeof text,
                  "no memory for a ring of %" PRIu64
                  " KiB (RLIMIT_MEMLOCK is unlimited); ask for fewer ring_entries",
                  needed);
  } else {
    std::snprintf(text, sizeof text,
                  "each runtime's ring takes %" PRIu64
                  " KiB, which many kernels count as locked memory, of all processes of a user "
                  "together; RLIMIT_MEMLOCK is %" PRIu64
                  " KiB: raise it (ulimit -l unlimited), or ask for fewer ring_entries",
                  needed, here.memlock_bytes / 1024);
  }
  return text;
}

}  // namespace

failure diagnose_uring(int errno_value, const uring_surroundings& here, unsigned entries) noexcept {
  switch (errno_value) {
    case EPERM:
    case EACCES:
      return errno_failure(errno_value, "io_uring_setup", {}, cause_of_eperm(here.disabled));
    case ENOSYS:
      return errno_failure(errno_value, "io_uring_setup", {},
                           "this kernel is without io_uring, or a seccomp filter hides it; "
                           "use Linux 5.13 or later, or allow io_uring_setup in the filter");
    case ENOMEM: return errno_failure(errno_value, "io_uring_setup", {}, lack(here, entries));
    case EINVAL:
      return errno_failure(errno_value, "io_uring_setup", {},
                           "ring_entries is 0, or this kernel is older than Linux 5.13");
    default:
      return errno_failure(errno_value, "io_uring_setup", {}, way_out_of_descriptors(errno_value));
  }
}

}  // namespace cordma
