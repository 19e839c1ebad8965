#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace top {

/// The parsed command line.
struct options {
  std::string help{};                ///< The text to print, if it was asked for.
  std::vector<int> pids{};           ///< Processes to watch.
  std::vector<std::string> pages{};  ///< Addresses to watch. With none of both: all programs.
  std::chrono::milliseconds interval{1000};
  unsigned count = 0;  ///< Tables to print; 0: no limit.
  bool is_json = false;
  bool is_plain = false;  ///< Prints tables below each other, also on a terminal.
};

/// \errors std::invalid_argument: in one line, what is wrong and the way out.
options parse_options(int argc, char** argv);

}  // namespace top
