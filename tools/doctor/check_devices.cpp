#include "checks.hpp"

#include <cordma/verbs/queue_pair_attributes.hpp>

#include <infiniband/verbs.h>

#include <algorithm>

namespace doctor {
namespace {

using cordma::verbs::bytes_of;
using cordma::verbs::port_info;

const char* layer_of(const port_info& port) noexcept {
  return port.is_ethernet() ? "Ethernet (RoCE)" : "InfiniBand";
}

const char* why_device = "a program that names no device uses the first with an ACTIVE port";

/// Names the command that is likely to make the port ACTIVE.
std::string activation(const subject& s, const port_info& port) {
  if (!port.is_ethernet()) return "start a subnet manager: sudo systemctl start opensm";
  const std::string parent =
      s.files.text(s.device->folder() + "/parent").value_or("");  // Soft-RoCE names it so.
  const auto netdevs = s.files.names(s.device->folder() + "/device/net");
  const std::string netdev = !parent.empty()   ? parent
                             : netdevs.empty() ? "NETDEV"
                                               : netdevs.front();
  return "sudo ip link set " + netdev + " up";
}

std::string mend_of_absence(const subject& s) {
  const auto code = s.device_failure->code;
  if (code == std::errc::invalid_argument) return "correct or unset CORDMA_DEVICE";
  if (code == cordma::errc::no_device && !s.wanted_device.empty()) {
    return "name a device that there is, or none";
  }
  if (!s.files.names("/sys/class/infiniband").empty()) {
    return "see the findings of device.file and modules; sudo ip link set NETDEV up";
  }
  return "attach an RNIC, or: sudo modprobe rdma_rxe && sudo rdma link add rxe0 type rxe netdev "
         "NETDEV";
}

void check_absence(const subject& s, report& r) {
  r.error("device", s.device_failure->to_string(),
          "without a device that it may open, no program can use RDMA", mend_of_absence(s));
}

void check_others(const subject& s, report& r) {
  const auto kernel = s.files.names("/sys/class/infiniband");
  std::string others;
  for (const std::string& name : kernel) {
    if (name != s.device->info.name) others += (others.empty() ? "" : ", ") + name;
  }
  if (others.empty()) return;
  const std::string why = "a program uses another device only by its name";
  if (s.device->is_in_kernel) {
    r.note("device.others", others, why, "--device NAME, or CORDMA_DEVICE=NAME");
  } else {
    r.warning("device.others", others + ": in the kernel, and not used", why,
              "see to its port and files, then --device NAME");
  }
}

void check_ports(const subject& s, report& r) {
  for (const port_facts& one : s.device->ports) {
    const port_info& port = one.info;
    std::string value = "port " + std::to_string(port.number) + ' ' +
                        ibv_port_state_str(port.state) + ", " + layer_of(port) + ", MTU " +
                        std::to_string(bytes_of(port.mtu_active));
    if (!port.is_ethernet()) value += ", LID " + std::to_string(port.lid);
    const bool is_used = &one == s.device->port();
    const std::string why = "only an ACTIVE port carries packets";
    if (port.is_active()) {
      r.ok("port", value + (is_used ? "" : ", not used"), why);
    } else if (s.device->port() == nullptr || is_used) {
      r.error("port", value, why, activation(s, port));
    } else {
      r.note("port", value + ", not used", why, activation(s, port));
    }
  }
}

}  // namespace

void check_devices(const subject& s, report& r) {
  if (!s.device) return check_absence(s, r);
  const device_facts& d = *s.device;
  if (s.device_failure) {
    r.error("environment", s.device_failure->to_string(),
            "a runtime refuses a wrong variable, and does not start", "unset the variable");
  }
  if (d.is_in_kernel) {
    r.ok("device", d.info.name, why_device);
  } else {
    r.note("device", d.info.name + ": a device in user space, no hardware",
           "it serves development and tests; its speed says nothing about a network");
  }
  check_others(s, r);
  check_ports(s, r);
}

}  // namespace doctor
