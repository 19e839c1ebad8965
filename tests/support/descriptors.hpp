#pragma once

#include <sys/socket.h>

#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <system_error>

namespace cordma::test {

/// A descriptor of this process as /proc lists it: its number, and where it leads.
struct listed_descriptor {
  explicit listed_descriptor(int fd) : number{fd}, target{target_of(fd)} {}

  /// Returns where a descriptor leads; empty: it is closed.
  static std::string target_of(int fd) {
    std::error_code gone;
    return std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(fd), gone).string();
  }
  /// Returns the kind of file; nothing for a Unix socket, and for what was closed since.
  [[nodiscard]] std::optional<std::string> kind() const {
    sockaddr_storage own{};
    socklen_t size = sizeof own;
    const bool is_socket = ::getsockname(number, reinterpret_cast<sockaddr*>(&own), &size) == 0;
    // Another thread may close the descriptor at any time, and its number is used again.
    if (target.empty() || target_of(number) != target) return std::nullopt;
    if (is_socket && own.ss_family == AF_UNIX) return std::nullopt;
    return target.substr(0, target.find(":["));
  }

  int number;
  std::string target;
};

/// Returns the kinds of this process's descriptors. A link of softverbs to another process, which
/// is a Unix socket, lasts as long as both, and is not among them.
inline std::multiset<std::string> descriptors() {
  std::multiset<std::string> all;
  for (const auto& one : std::filesystem::directory_iterator{"/proc/self/fd"})
    if (const auto kind = listed_descriptor{std::stoi(one.path().filename().string())}.kind())
      all.insert(*kind);
  return all;
}

}  // namespace cordma::test
