#include "checks.hpp"

#include <array>

namespace doctor {
namespace {

constexpr int priorities = 8;

/// Returns the priorities with ECN, as mlx5 tells them in the interface's folder; none: no file.
std::optional<std::string> ecn_priorities(const subject& s, const std::string& netdev,
                                          const char* point) {
  const std::string folder = "/sys/class/net/" + netdev + "/ecn/" + point + "/enable/";
  if (!s.files.has(folder)) return std::nullopt;
  std::string on;
  for (int priority = 0; priority < priorities; ++priority) {
    if (s.files.number(folder + std::to_string(priority)) == 1) on += std::to_string(priority);
  }
  return on;
}

void check_ecn(const subject& s, const std::string& netdev, report& r) {
  const std::string why =
      "with ECN a device slows down before switches drop packets, and each lost packet of RC is "
      "sent again with all behind it";
  const auto notifies = ecn_priorities(s, netdev, "roce_np");
  const auto reacts = ecn_priorities(s, netdev, "roce_rp");
  if (!notifies || !reacts) return;
  const std::string value = "priorities that notify: " + (notifies->empty() ? "none" : *notifies) +
                            ", that react: " + (reacts->empty() ? "none" : *reacts);
  if (!notifies->empty() && !reacts->empty()) {
    r.ok("congestion.ecn", value, why);
    return;
  }
  const std::string folder = "/sys/class/net/" + netdev + "/ecn/roce_";
  r.warning("congestion.ecn", value, why,
            "echo 1 | sudo tee " + folder + "np/enable/3 " + folder + "rp/enable/3");
}

/// Returns the priorities with PFC, as the kernel or the vendor's file tells them; none: unknown.
std::optional<std::string> pfc_priorities(const subject& s, const std::string& netdev) {
  std::string on;
  if (s.device->pfc) {
    for (int priority = 0; priority < priorities; ++priority) {
      if ((*s.device->pfc >> priority & 1) != 0) on += std::to_string(priority);
    }
    return on;
  }
  const auto file = s.files.text("/sys/class/net/" + netdev + "/qos/pfc");
  if (!file) return std::nullopt;
  int priority = 0;
  for (const char c : *file) {  // "0,0,0,1,0,0,0,0".
    if (c != '0' && c != '1') continue;
    if (c == '1') on += std::to_string(priority);
    if (++priority == priorities) break;
  }
  return on;
}

void check_pfc(const subject& s, const std::string& netdev, report& r) {
  const auto on = pfc_priorities(s, netdev);
  if (!on) return;
  const std::string why = "without PFC a full switch drops packets, unless ECN prevents it";
  const std::string value = "priorities with PFC: " + (on->empty() ? "none" : *on);
  if (on->empty()) {
    r.note("congestion.pfc", value, why,
           "sudo dcb pfc set dev " + netdev + " prio-pfc 3:on (and on the switches)");
  } else {
    r.ok("congestion.pfc", value, why);
  }
}

/// The DSCP that connections have: of the options, of the kernel's default for rdma_cm.
void check_dscp(const subject& s, const port_facts& port, report& r) {
  const auto& option = s.device->options.fabric.traffic_class;
  const std::string port_folder = "/ports/" + std::to_string(port.info.number);
  const auto tos = s.files.number("/sys/kernel/config/rdma_cm/" + s.device->info.name +
                                  port_folder + "/default_roce_tos");
  const auto forced = s.files.text(s.device->folder() + "/tc/" + std::to_string(port.info.number) +
                                   "/traffic_class");
  std::string value = "traffic class " + std::to_string(option.value_or(0)) + ", DSCP " +
                      std::to_string(option.value_or(0) >> 2);
  if (tos) value += "; rdma_cm's default is " + std::to_string(*tos);
  if (forced && !forced->empty()) value += "; the device replaces it (" + *forced + ")";
  const std::string why =
      "switches choose a packet's priority by its DSCP; a lossless network serves only some";
  if (option.value_or(0) != 0 || (forced && !forced->empty())) {
    r.ok("congestion.dscp", value, why);
  } else {
    r.note("congestion.dscp", value, why, "if the network wants DSCP 26: CORDMA_TRAFFIC_CLASS=106");
  }
}

/// Counters of the device since it started, which tell that the network is too full.
void check_counters(const subject& s, const port_facts& port, report& r) {
  constexpr std::array counters{"out_of_sequence", "packet_seq_err", "local_ack_timeout_err",
                                "np_cnp_sent",     "rp_cnp_handled", "roce_adp_retrans"};
  const std::string folder =
      s.device->folder() + "/ports/" + std::to_string(port.info.number) + "/hw_counters/";
  std::string value;
  bool has_lost = false;
  for (const char* name : counters) {
    const auto count = s.files.number(folder + name);
    if (!count) continue;
    value += (value.empty() ? "" : ", ") + std::string{name} + ' ' + std::to_string(*count);
    const std::string_view is{name};
    has_lost |= *count > 0 && (is == "packet_seq_err" || is == "local_ack_timeout_err");
  }
  if (value.empty()) return;
  const std::string why = "the first three grow when packets are lost, since the device started";
  if (has_lost) {
    r.note("congestion.counters", value, why, "see whether they grow under load; then PFC and ECN");
  } else {
    r.ok("congestion.counters", value, why);
  }
}

}  // namespace

void check_congestion(const subject& s, report& r) {
  const port_facts* const port = s.kernel_device() != nullptr ? s.device->port() : nullptr;
  if (port == nullptr) return;
  if (port->info.is_ethernet()) {
    if (const std::string netdev = s.netdev(); !netdev.empty()) {
      check_ecn(s, netdev, r);
      check_pfc(s, netdev, r);
    }
    check_dscp(s, *port, r);
  }
  check_counters(s, *port, r);
}

}  // namespace doctor
