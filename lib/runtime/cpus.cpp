#include "cpus.hpp"

#include <cordma/base/error.hpp>
#include <cordma/runtime/runtime_group.hpp>

#include <sched.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <string>

namespace cordma {
namespace {

/// The most CPUs that Linux can be built for; a mask smaller than the kernel's gives EINVAL.
constexpr unsigned cpus_limit = 8192;

using cpu_mask = std::array<cpu_set_t, cpus_limit / CPU_SETSIZE>;

/// Formats CPUs as "0-3,8".
std::string ranges(const std::vector<unsigned>& cpus) {
  std::string text;
  for (std::size_t i = 0; i < cpus.size();) {
    std::size_t last = i;
    while (last + 1 < cpus.size() && cpus[last + 1] == cpus[last] + 1) ++last;
    if (!text.empty()) text += ',';
    text += std::to_string(cpus[i]);
    if (last > i) text.append("-").append(std::to_string(cpus[last]));
    i = last + 1;
  }
  return text;
}

}  // namespace

std::vector<unsigned> runtime_group::allowed_cpus() {
  cpu_mask mask{};
  if (::sched_getaffinity(0, sizeof mask, mask.data()) != 0) {
    throw error{errno_failure(errno, "sched_getaffinity")};
  }
  std::vector<unsigned> cpus;
  for (unsigned cpu = 0; cpu < cpus_limit; ++cpu) {
    if (CPU_ISSET_S(cpu, sizeof mask, mask.data())) cpus.push_back(cpu);
  }
  return cpus;
}

void check_cpu(unsigned cpu) {
  const std::vector<unsigned> allowed = runtime_group::allowed_cpus();
  if (std::binary_search(allowed.begin(), allowed.end(), cpu)) return;
  const std::string detail = "CPU " + std::to_string(cpu) + " is none of " + ranges(allowed) +
                             ", which this thread may use: name one of those, or give it more "
                             "(taskset, cpuset)";
  throw error{errno_failure(EINVAL, "pin", {}, std::string_view{detail})};
}

void pin_to(unsigned cpu) {
  check_cpu(cpu);
  cpu_mask mask{};
  CPU_SET_S(cpu, sizeof mask, mask.data());
  if (::sched_setaffinity(0, sizeof mask, mask.data()) != 0) {
    throw error{errno_failure(errno, "sched_setaffinity", {"cpu", cpu})};
  }
}

}  // namespace cordma
