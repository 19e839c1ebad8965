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

class cpu_mask {
 public:
  [[nodiscard]] static constexpr std::size_t size_bytes() noexcept { return cpus_limit / 8; }
  [[nodiscard]] cpu_set_t* set() noexcept { return sets_.data(); }
  [[nodiscard]] bool has(unsigned cpu) noexcept { return CPU_ISSET_S(cpu, size_bytes(), set()); }
  void add(unsigned cpu) noexcept { CPU_SET_S(cpu, size_bytes(), set()); }

 private:
  std::array<cpu_set_t, cpus_limit / CPU_SETSIZE> sets_{};
};

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

std::vector<unsigned> allowed_cpus() {
  cpu_mask mask;
  if (::sched_getaffinity(0, cpu_mask::size_bytes(), mask.set()) != 0) {
    throw error{errno_failure(errno, "sched_getaffinity")};
  }
  std::vector<unsigned> cpus;
  for (unsigned cpu = 0; cpu < cpus_limit; ++cpu) {
    if (mask.has(cpu)) cpus.push_back(cpu);
  }
  return cpus;
}

void check_cpu(unsigned cpu) {
  const std::vector<unsigned> allowed = allowed_cpus();
  if (std::binary_search(allowed.begin(), allowed.end(), cpu)) return;
  const std::string detail = "CPU " + std::to_string(cpu) + " is none of " + ranges(allowed) +
                             ", which this thread may use: name one of those, or give it more "
                             "(taskset, cpuset)";
  throw error{errno_failure(EINVAL, "pin", {}, std::string_view{detail})};
}

void pin_to(unsigned cpu) {
  check_cpu(cpu);
  cpu_mask mask;
  mask.add(cpu);
  if (::sched_setaffinity(0, cpu_mask::size_bytes(), mask.set()) != 0) {
    throw error{errno_failure(errno, "sched_setaffinity", {"cpu", cpu})};
  }
}

}  // namespace cordma
