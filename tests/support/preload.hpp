#pragma once

#include <fstream>
#include <string>

namespace cordma::test {

/// Returns the libraries of softverbs that this process has, for another one; empty: a real device.
inline std::string preload() {
  std::ifstream maps{"/proc/self/maps"};
  std::string libraries;
  for (std::string line; std::getline(maps, line);) {
    const std::size_t path = line.find('/');
    if (path == line.npos || line.find("libsoftverbs") == line.npos) continue;
    const std::string library = line.substr(path);
    if (libraries.find(library) == libraries.npos) libraries += library + ' ';
  }
  return libraries;
}

}  // namespace cordma::test
