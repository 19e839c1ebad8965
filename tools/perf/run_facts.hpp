#pragma once

#include <string>

namespace perf {

/// Facts about a run, for those who compare its numbers with others.
struct run_facts {
  std::string device{};
  std::string server{};  ///< Host of the server; "local": both ends here.
  std::string host{};
  std::string kernel{};
  std::string date{};     ///< ISO 8601, in UTC.
  std::string version{};  ///< The version of cordma.
};

/// Reads this machine's.
run_facts read_facts(const std::string& device, const std::string& server);

}  // namespace perf
