#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace cordma::test {

/// The kernel's objects, of all of the machine: other programs' sockets and files are among them.
struct machine_counts {
  std::uint64_t sockets = 0;     ///< this network namespace's, also without a descriptor
  std::uint64_t files = 0;       ///< open file descriptions
  std::uint64_t slab_bytes = 0;  ///< objects that the kernel cannot do without
};

/// The resources of this process.
struct process_counts {
  std::uint64_t descriptors = 0;
  std::uint64_t threads = 0;
  std::uint64_t mappings = 0;
  std::uint64_t address_bytes = 0;
  std::uint64_t resident_bytes = 0;
};

/// The number behind `name` in a file of /proc; 0 where the file says nothing of it.
inline std::uint64_t proc_number(const char* path, const std::string& name) {
  std::ifstream file{path};
  for (std::string word; file >> word;) {
    std::uint64_t value = 0;
    if (word == name && file >> value) return value;
  }
  return 0;
}

inline machine_counts counts_of_machine() {
  machine_counts now;
  now.sockets = proc_number("/proc/net/sockstat", "used");
  std::ifstream{"/proc/sys/fs/file-nr"} >> now.files;
  now.slab_bytes = proc_number("/proc/meminfo", "SUnreclaim:") * 1024;
  return now;
}

inline process_counts counts_of_process() {
  namespace fs = std::filesystem;
  const auto entries = [](const char* folder) {
    return std::uint64_t(std::distance(fs::directory_iterator{folder}, fs::directory_iterator{}));
  };
  process_counts now;
  now.descriptors = entries("/proc/self/fd");
  now.threads = entries("/proc/self/task");
  std::ifstream maps{"/proc/self/maps"};
  using lines = std::istreambuf_iterator<char>;
  now.mappings = std::uint64_t(std::count(lines{maps}, lines{}, '\n'));
  now.address_bytes = proc_number("/proc/self/status", "VmSize:") * 1024;
  now.resident_bytes = proc_number("/proc/self/status", "VmRSS:") * 1024;
  return now;
}

}  // namespace cordma::test
