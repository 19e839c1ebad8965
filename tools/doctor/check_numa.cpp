#include "checks.hpp"

#include <algorithm>
#include <sstream>

namespace doctor {
namespace {

/// Reads a list of CPUs as sysfs writes it: "0-3,8".
std::vector<unsigned> cpus_of(const std::string& list) {
  constexpr unsigned cpus_limit = 8192;
  std::vector<unsigned> all;
  std::istringstream parts{list};
  for (std::string part; std::getline(parts, part, ',');) {
    unsigned first = 0;
    char dash = 0;
    std::istringstream numbers{part};
    if (!(numbers >> first)) continue;
    unsigned last = first;
    if (numbers >> dash && !(numbers >> last)) continue;
    for (unsigned cpu = first; cpu <= last && cpu < cpus_limit; ++cpu) all.push_back(cpu);
  }
  return all;
}

}  // namespace

void check_numa(const subject& s, report& r) {
  if (s.kernel_device() == nullptr) return;
  const auto node = s.files.number(s.device->folder() + "/device/numa_node");
  const std::string why =
      "on another node each access to the device's memory, and each interrupt, crosses the sockets";
  if (!node || *node < 0) {
    r.ok("numa", "the device belongs to no node", why);
    return;
  }
  const std::string name = "node " + std::to_string(*node);
  const std::string list =
      s.files.text("/sys/devices/system/node/node" + std::to_string(*node) + "/cpulist")
          .value_or("");
  const std::vector<unsigned> near = cpus_of(list);
  const auto is_near = [&](unsigned cpu) { return std::ranges::binary_search(near, cpu); };
  const auto count = std::size_t(std::ranges::count_if(s.process.cpus, is_near));
  const std::string value = s.device->info.name + " is on " + name + " (CPUs " + list + "); " +
                            std::to_string(count) + " of the " +
                            std::to_string(s.process.cpus.size()) + " CPUs allowed are there";
  const std::string bind = "numactl --cpunodebind=" + std::to_string(*node) +
                           " --membind=" + std::to_string(*node) + " PROGRAM";
  if (near.empty()) {
    r.note("numa", value, why);
  } else if (count == 0) {
    r.warning("numa", value, why, bind + "; of a container --cpuset-cpus " + list);
  } else if (count < s.process.cpus.size()) {
    r.note("numa", value, why, bind + ", or runtime_group_options::pin");
  } else {
    r.ok("numa", value, why);
  }
}

}  // namespace doctor
