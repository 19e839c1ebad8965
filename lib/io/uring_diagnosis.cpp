#include "uring_diagnosis.hpp"

#include "base/descriptors.hpp"
#include "base/failures.hpp"

#include <liburing.h>
#include <sys/resource.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cinttypes>
#include <fstream>

namespace cordma {

uring_surroundings read_surroundings() {
  uring_surroundings here;
  std::ifstream{"/proc/sys/kernel/io_uring_disabled"} >> here.disabled;
  rlimit limit{};
  if (::getrlimit(RLIMIT_MEMLOCK, &limit) == 0) here.memlock_bytes = limit.rlim_cur;
  return here;
}

std::uint64_t ring_bytes(unsigned entries) noexcept {
  constexpr std::uint64_t page = 4096;
  constexpr std::uint64_t head = 320;
  const std::uint64_t n = std::bit_ceil(std::clamp(entries, 1u, 32768u));
  const auto pages = [](std::uint64_t bytes) { return (bytes + page - 1) / page * page; };
  return pages(n * sizeof(io_uring_sqe)) +
         pages(head + 2 * n * sizeof(io_uring_cqe) + n * sizeof(std::uint32_t));
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

fixed_text<240> cause_of_enomem(const uring_surroundings& here, unsigned entries) noexcept {
  const std::uint64_t needed = ring_bytes(entries) / 1024;
  if (here.memlock_bytes == RLIM_INFINITY) {
    return detail::detail_text("no memory for a ring of %" PRIu64
                               " KiB (RLIMIT_MEMLOCK is unlimited); ask for fewer ring_entries",
                               needed);
  }
  return detail::detail_text(
      "each runtime's ring takes %" PRIu64
      " KiB, which many kernels count as locked memory, of all processes of a user "
      "together; RLIMIT_MEMLOCK is %" PRIu64
      " KiB: raise it (ulimit -l unlimited), or ask for fewer ring_entries",
      needed, here.memlock_bytes / 1024);
}

fixed_text<240> cause_of(int errno_value, const uring_surroundings& here,
                         unsigned entries) noexcept {
  switch (errno_value) {
    case EPERM:
    case EACCES: return cause_of_eperm(here.disabled);
    case ENOSYS:
      return "this kernel is without io_uring, or a seccomp filter hides it; "
             "use Linux 5.13 or later, or allow io_uring_setup in the filter";
    case ENOMEM: return cause_of_enomem(here, entries);
    case EINVAL: return "ring_entries is 0, or this kernel is older than Linux 5.13";
    default: return way_out_of_descriptors(errno_value);
  }
}

}  // namespace

failure diagnose_uring(int errno_value, const uring_surroundings& here, unsigned entries) noexcept {
  return errno_failure(errno_value, "io_uring_setup", {}, cause_of(errno_value, here, entries));
}

}  // namespace cordma
