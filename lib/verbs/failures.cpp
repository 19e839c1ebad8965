#include "failures.hpp"

#include <cordma/verbs/gid.hpp>

#include <sys/resource.h>

#include <cinttypes>
#include <fstream>
#include <string>

namespace cordma::verbs::detail {

namespace {

/// Returns the bytes that the kernel has pinned for this process's devices (proc_pid_status(5):
/// VmPin).
std::uint64_t pinned_bytes() {
  std::ifstream status{"/proc/self/status"};
  std::uint64_t kib = 0;
  for (std::string word; status >> word;)
    if (word == "VmPin:" && status >> kib) break;
  return kib * 1024;
}

/// Drivers pin some memory besides the requested bytes.
constexpr std::uint64_t memlock_slack = std::uint64_t{1} << 20;

}  // namespace

fixed_text<240> no_route_text(const ibv_global_route& route) noexcept {
  return detail_text(
      "no route to the peer's GID %s from gid_index %u: choose a GID of the peer's network",
      to_string(route.dgid).c_str(), unsigned{route.sgid_index});
}

fixed_text<240> lack_text(int errno_value, const std::string& subject, std::uint64_t needed_bytes,
                          std::uint64_t most, const char* objects) {
  if (!may_be_memlock(errno_value)) return subject;
  rlimit limit{};
  if (errno_value == EPERM || ::getrlimit(RLIMIT_MEMLOCK, &limit) != 0 ||
      needed_bytes + pinned_bytes() + memlock_slack > limit.rlim_cur) {
    return memlock_text(subject.c_str());
  }
  return detail_text("%s: the device's %" PRIu64
                     " %s are used up, by all processes together (close some), or the system has "
                     "no memory left",
                     subject.c_str(), most, objects);
}

fixed_text<240> memlock_text(const char* subject) noexcept {
  rlimit limit{};
  if (::getrlimit(RLIMIT_MEMLOCK, &limit) != 0) return subject;
  if (limit.rlim_cur == RLIM_INFINITY) {
    return detail_text(
        "%s: RLIMIT_MEMLOCK is unlimited, so the system or the device has no room "
        "for it; ask for less",
        subject);
  }
  return detail_text("%s: RLIMIT_MEMLOCK is %" PRIu64 " KiB; raise it (ulimit -l unlimited)",
                     subject, std::uint64_t{limit.rlim_cur} / 1024);
}

void check_range(const char* call, const char* name, std::uint64_t value, std::uint64_t low,
                 std::uint64_t high, const char* why) {
  if (value > high) {
    throw_failure(errc::limit_exceeded, call,
                  detail_text("%s %" PRIu64 " exceeds %s %" PRIu64, name, value, why, high));
  }
  if (value < low) {
    throw_failure(errc::limit_exceeded, call,
                  detail_text("%s %" PRIu64 " is below the least, %" PRIu64, name, value, low));
  }
}

}  // namespace cordma::verbs::detail
