#pragma once

#include <cstdint>
#include <fstream>
#include <string>

namespace cordma::test {

/// What the kernel holds, for all of the machine: other programs' sockets and files are among it.
struct machine_counts {
  std::uint64_t sockets = 0;     ///< of this network namespace, also those that no descriptor names
  std::uint64_t files = 0;       ///< open file descriptions
  std::uint64_t slab_bytes = 0;  ///< of the kernel's own objects, without what it can give back
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

}  // namespace cordma::test
