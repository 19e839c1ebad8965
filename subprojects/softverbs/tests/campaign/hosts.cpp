#include "hosts.hpp"

#include "rig.hpp"
#include "soak.hpp"

#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <cstdlib>
#include <stdexcept>

namespace rig {

void shell(const std::string& command) {
  if (std::system(command.c_str()) != 0) throw std::runtime_error{command + " failed"};
}

bool can_make_hosts() {
  if (::geteuid() != 0) {
    soak::skip("network namespaces are root's");
    return false;
  }
  const std::string probe = "sv-probe-" + std::to_string(::getpid());
  if (std::system(("ip netns add " + probe + " 2>/dev/null && ip netns del " + probe).c_str()) !=
      0) {
    soak::skip("no network namespaces here");
    return false;
  }
  return true;
}

void enter_host(const std::string& host) {
  if (host.empty()) return;
  const descriptor at{::open(host.c_str(), O_RDONLY | O_CLOEXEC)};
  check(::setns(at.get(), CLONE_NEWNET), "setns");
}

two_hosts::two_hosts() {
  const std::string a = "sv-a-" + std::to_string(::getpid());
  const std::string b = "sv-b-" + std::to_string(::getpid());
  shell("ip netns add " + a + " && ip netns add " + b + " && ip -n " + a +
        " link add veth0 type veth peer name veth0 netns " + b);
  at_a_ = made(a, "10.99.0.1");
  at_b_ = made(b, "10.99.0.2");
}

descriptor two_hosts::made(const std::string& name, const std::string& address) {
  shell("ip -n " + name + " addr add " + address + "/24 dev veth0 && ip -n " + name +
        " link set veth0 up && ip -n " + name + " link set lo up");
  descriptor opened{::open(("/run/netns/" + name).c_str(), O_RDONLY | O_CLOEXEC)};
  shell("ip netns del " + name);
  return opened;
}

std::string two_hosts::path(const descriptor& at) {
  return "/proc/" + std::to_string(::getpid()) + "/fd/" + std::to_string(at.get());
}

}  // namespace rig
