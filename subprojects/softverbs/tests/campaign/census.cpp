#include "census.hpp"

#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

namespace census {
namespace {

namespace fs = std::filesystem;

/// Where this process's, or another's, descriptors lead: "socket:[123]", "/memfd:x (deleted)".
std::vector<std::string> descriptors_of(const fs::path& process) {
  std::vector<std::string> found;
  std::error_code gone;  // Descriptors and processes come and go while we look.
  for (fs::directory_iterator i{process / "fd", gone}, end; !gone && i != end; i.increment(gone)) {
    std::error_code closed;
    const fs::path target = fs::read_symlink(i->path(), closed);
    if (!closed) found.push_back(target.string());
  }
  return found;
}

/// "socket:[inode]" -> "@softverbs.n", of this network namespace. A connection that its listener
/// has not accepted yet has the listener's name and no inode: it belongs to the listener.
std::map<std::string, std::string> softverbs_sockets() {
  std::map<std::string, std::string> found;
  std::ifstream table{"/proc/net/unix"};
  for (std::string line; std::getline(table, line);) {
    std::istringstream fields{line};
    std::string skipped, inode, name;
    for (int i = 0; i < 6; ++i) fields >> skipped;
    fields >> inode >> name;
    if (name.starts_with("@softverbs.") && inode != "0") found["socket:[" + inode + "]"] = name;
  }
  return found;
}

}  // namespace

holdings now() {
  holdings h;
  h.descriptors = descriptors_of("/proc/self").size();
  std::ifstream maps{"/proc/self/maps"};
  for (std::string line; std::getline(maps, line);) ++h.mappings;
  std::ifstream status{"/proc/self/status"};
  for (std::string key; status >> key;) {
    if (key == "VmRSS:") status >> h.resident_kib;
    if (key == "Threads:") status >> h.threads;
  }
  return h;
}

std::vector<std::string> leftovers() {
  std::vector<std::string> found;
  const auto sockets = softverbs_sockets();
  for (const std::string& target : descriptors_of("/proc/self")) {
    if (const auto at = sockets.find(target); at != sockets.end()) found.push_back(at->second);
    if (target.starts_with("/memfd:")) found.push_back(target);
  }
  std::ifstream maps{"/proc/self/maps"};
  for (std::string line; std::getline(maps, line);) {
    if (line.find("/memfd:") != std::string::npos) found.push_back(line);
  }
  return found;
}

std::vector<std::string> orphans() {
  auto names = softverbs_sockets();
  // A socket that closes meanwhile is no orphan: it is gone the next time.
  constexpr int rounds = 5;
  for (int i = 0; i < rounds && !names.empty(); ++i) {
    const auto still_there = softverbs_sockets();
    std::erase_if(names, [&](const auto& name) { return !still_there.contains(name.first); });
    for (const auto& process : fs::directory_iterator{"/proc"}) {
      if (process.path().filename().string().find_first_not_of("0123456789") != std::string::npos)
        continue;
      for (const std::string& target : descriptors_of(process.path())) names.erase(target);
    }
  }
  std::vector<std::string> found;
  for (const auto& [inode, name] : names) found.push_back(name + ' ' + inode);
  return found;
}

}  // namespace census
