#pragma once

#include <cordma/base/unique_fd.hpp>

#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>  // NOLINT(modernize-deprecated-headers): setenv is POSIX's.
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <system_error>

namespace cordma::test {

/// Two network namespaces and a cable between them. They have no names, and so go with those who
/// use them.
class two_hosts {
 public:
  static constexpr std::array addresses{"10.99.0.1", "10.99.0.2"};

  two_hosts() {
    const std::array names{name("a"), name("b")};
    shell("ip netns add " + names[0] + " && ip netns add " + names[1] + " && ip -n " + names[0] +
          " link add veth0 type veth peer name veth0 netns " + names[1]);
    for (std::size_t i = 0; i < names.size(); ++i) {
      shell("ip -n " + names[i] + " addr add " + addresses[i] + "/24 dev veth0 && ip -n " +
            names[i] + " link set veth0 up && ip -n " + names[i] + " link set lo up");
      hosts_[i] = unique_fd{::open(("/run/netns/" + names[i]).c_str(), O_RDONLY | O_CLOEXEC)};
      check(hosts_[i].is_open(), "open a network namespace");
    }
    shell("ip netns del " + names[0] + " && ip netns del " + names[1]);
  }
  /// Moves this thread to a host, before it opens a device.
  void enter(std::size_t which) const {
    check(::setns(hosts_.at(which).get(), CLONE_NEWNET) == 0, "setns");
    ::setenv("SOFTVERBS_LISTEN", addresses.at(which), 1);  // NOLINT(concurrency-mt-unsafe)
  }
  /// Pulls the cable out of the second host: from now on neither hears the other.
  void cut() const {
    shell("nsenter --net=/proc/" + std::to_string(::getpid()) + "/fd/" +
          std::to_string(hosts_[1].get()) + " ip link set veth0 down");
  }

 private:
  static std::string name(const char* which) {
    return std::string{"hosts-"} + which + '-' + std::to_string(::getpid());
  }
  static void shell(const std::string& command) {
    // NOLINTNEXTLINE(concurrency-mt-unsafe)
    if (std::system(command.c_str()) != 0) throw std::runtime_error{command + " failed"};
  }
  static void check(bool well, const char* what) {
    if (!well) throw std::system_error{errno, std::system_category(), what};
  }
  std::array<unique_fd, 2> hosts_;
};

/// Returns why there are no network namespaces here; empty: there are.
inline std::string why_no_hosts() {
  if (::geteuid() != 0) return "network namespaces are root's";
  try {
    const two_hosts tried;
    return "";
  } catch (const std::exception& e) {
    return e.what();
  }
}

}  // namespace cordma::test
