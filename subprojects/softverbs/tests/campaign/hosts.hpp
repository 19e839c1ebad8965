#pragma once

#include "process.hpp"

#include <string>

namespace rig {

void shell(const std::string& command);  ///< throws unless it succeeds

/// False, and the running case counts as skipped, where nobody may make network namespaces.
bool can_make_hosts();

/// Moves this thread to a host. `host`: the path of a network namespace; empty: stays here.
void enter_host(const std::string& host);

/// Two hosts and a cable between their veth0, 10.99.0.1 and 10.99.0.2. Hosts are network namespaces
/// without names, and so go with those who use them, also when this process is killed.
class two_hosts {
 public:
  two_hosts();
  [[nodiscard]] std::string a() const { return path(at_a_); }
  [[nodiscard]] std::string b() const { return path(at_b_); }

 private:
  static descriptor made(const std::string& name, const std::string& address);
  static std::string path(const descriptor& at);
  descriptor at_a_, at_b_;
};

}  // namespace rig
