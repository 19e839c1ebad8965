#include "checks.hpp"

#include <algorithm>
#include <filesystem>
#include <limits>
#include <sstream>

namespace doctor {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t no_limit = std::numeric_limits<std::int64_t>::max();

/// A control group's folder, and those above it, whose limits hold as well.
std::vector<std::string> levels(const machine& files, const std::string& mount,
                                const std::string& path) {
  std::vector<std::string> all;
  for (fs::path at = fs::path{path}.lexically_normal().relative_path();; at = at.parent_path()) {
    const std::string folder = at.empty() ? mount : mount + '/' + at.string();
    if (files.has(folder)) all.push_back(folder);
    if (at.empty()) return all;
  }
}

/// Returns the folders of this process's groups with a controller, in version 2 or 1 of groups.
std::vector<std::string> folders(const machine& files, const std::string& controller) {
  std::vector<std::string> all;
  std::istringstream lines{files.text("/proc/self/cgroup").value_or("")};
  for (std::string line; std::getline(lines, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = ',' + line.substr(first + 1, second - first - 1) + ',';
    const std::string path = line.substr(second + 1);
    if (controllers == ",,") {
      const auto of = levels(files, "/sys/fs/cgroup", path);
      all.insert(all.end(), of.begin(), of.end());
    } else if (controllers.find(',' + controller + ',') != std::string::npos) {
      const auto of = levels(files, "/sys/fs/cgroup/" + controller, path);
      all.insert(all.end(), of.begin(), of.end());
    }
  }
  return all;
}

/// Returns the number behind `name=` in the device's line of rdma.max or rdma.current.
std::int64_t resource(const machine& files, const std::string& file, const std::string& device,
                      const std::string& name, std::int64_t otherwise) {
  std::istringstream lines{files.text(file).value_or("")};
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words{line};
    std::string word;
    if (!(words >> word) || word != device) continue;
    while (words >> word) {
      if (!word.starts_with(name + '=')) continue;
      const std::string number = word.substr(name.size() + 1);
      if (number.empty() || number.find_first_not_of("0123456789") != std::string::npos) break;
      return std::stoll(number);
    }
  }
  return otherwise;
}

/// The limit of a device's resource in one group.
struct level {
  std::string folder{};
  std::int64_t most = no_limit;
  std::int64_t used = 0;
  [[nodiscard]] std::int64_t left() const noexcept { return most - used; }
};

/// Returns the level that leaves least: the limits of all groups above a process hold.
level tightest(const subject& s, const std::string& device, const std::string& name) {
  level found;
  for (const std::string& folder : folders(s.files, "rdma")) {
    level one{.folder = folder};
    one.most = resource(s.files, folder + "/rdma.max", device, name, no_limit);
    one.used = resource(s.files, folder + "/rdma.current", device, name, 0);
    if (one.most != no_limit && one.left() < found.left()) found = one;
  }
  return found;
}

void check_resource(const subject& s, const std::string& name, std::uint64_t need, report& r) {
  const std::string& device = s.device->info.name;
  const level tight = tightest(s, device, name);
  if (tight.most == no_limit) return;
  const std::string file = tight.folder + "/rdma.max";
  const std::string value = file + " allows " + device + ' ' + std::to_string(tight.most) +
                            ", in use are " + std::to_string(tight.used) +
                            "; one runtime with a connection needs at least " +
                            std::to_string(need);
  const std::string why = "beyond the limit, opening the device or making an object fails";
  if (tight.left() < std::int64_t(need)) {
    r.error("cgroup." + name, value, why,
            "echo '" + device + ' ' + name + "=max' | sudo tee " + file);
  } else {
    r.note("cgroup." + name, value, why);
  }
}

std::int64_t value_of(const machine& files, const std::string& folder, const char* v2,
                      const char* v1) {
  const auto number = files.number(folder + '/' + v2);
  return number ? *number : files.number(folder + '/' + v1).value_or(no_limit);
}

void check_memory(const subject& s, report& r) {
  std::int64_t least = no_limit;
  std::string where;
  for (const std::string& folder : folders(s.files, "memory")) {
    const std::int64_t most = value_of(s.files, folder, "memory.max", "memory.limit_in_bytes");
    // Version 1 says "no limit" by a number near the largest.
    if (most >= std::int64_t{1} << 60) continue;
    const std::int64_t used = value_of(s.files, folder, "memory.current", "memory.usage_in_bytes");
    const std::int64_t left = std::max<std::int64_t>(0, most - (used == no_limit ? 0 : used));
    if (left >= least) continue;
    least = left;
    where = folder;
  }
  if (where.empty()) return;
  const std::string value = where + " leaves " + bytes_text(std::uint64_t(least)) +
                            "; one runtime needs " + bytes_text(runtime_bytes());
  const std::string why =
      "registered memory counts, cannot be reclaimed, and ends in the OOM killer";
  if (std::uint64_t(least) < runtime_bytes()) {
    r.error("cgroup.memory", value, why,
            "raise memory.max of " + where + "; of a container --memory");
  } else {
    r.ok("cgroup.memory", value, why);
  }
}

}  // namespace

void check_cgroups(const subject& s, report& r) {
  if (s.kernel_device() != nullptr) {
    check_resource(s, "hca_handle", 1, r);
    check_resource(s, "hca_object", runtime_objects, r);
  }
  check_memory(s, r);
}

}  // namespace doctor
