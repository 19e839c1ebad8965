#include "checks.hpp"

#include <infiniband/verbs.h>

#include <array>

namespace doctor {
namespace {

using cordma::verbs::bytes_of;

/// Bytes of a RoCE packet that are no payload: GRH or IPv6, UDP, BTH, XRC's and an atomic's header,
/// ICRC. Drivers subtract as many from the interface's MTU (iboe_get_mtu in ib_addr.h), or fewer.
constexpr std::int64_t header_bytes = 40 + 8 + 12 + 4 + 28 + 4;
/// The fewest: IPv4, UDP, BTH, the RETH of a WRITE, ICRC.
constexpr std::int64_t header_bytes_min = 20 + 8 + 12 + 16 + 4;

/// Returns the largest path MTU that fits the interface; 0: none does.
std::uint32_t fitting(std::int64_t netdev_mtu, std::int64_t headers) noexcept {
  constexpr std::array all{IBV_MTU_4096, IBV_MTU_2048, IBV_MTU_1024, IBV_MTU_512, IBV_MTU_256};
  for (const ibv_mtu one : all) {
    if (std::int64_t(bytes_of(one)) + headers <= netdev_mtu) return bytes_of(one);
  }
  return 0;
}

std::string set_mtu(const std::string& netdev, std::uint32_t payload) {
  return "sudo ip link set " + netdev + " mtu " + std::to_string(payload + header_bytes) +
         " (and on switches and peers)";
}

}  // namespace

void check_mtu(const subject& s, report& r) {
  const port_facts* const port = s.device ? s.device->port() : nullptr;
  if (port == nullptr || !s.device->is_in_kernel) return;
  const std::uint32_t active = bytes_of(port->info.mtu_active);
  const std::uint32_t most = bytes_of(port->info.mtu_max);
  const std::string port_text = "the port's is " + std::to_string(active);
  if (!port->info.is_ethernet()) {
    r.ok("mtu", port_text, "the subnet manager decides on the MTU of InfiniBand");
    return;
  }
  const std::string netdev = s.netdev();
  const auto mtu =
      netdev.empty() ? std::nullopt : s.files.number("/sys/class/net/" + netdev + "/mtu");
  if (!mtu) {
    r.note("mtu", port_text + "; the network interface's is unknown",
           "packets that are longer than the interface's MTU are lost");
    return;
  }
  const std::string value = port_text + ", that of " + netdev + ' ' + std::to_string(*mtu);
  const std::uint32_t fits = fitting(*mtu, header_bytes_min);
  if (active > fits) {
    r.error("mtu", value + ", into which " + std::to_string(fits) + " fits",
            "longer packets are lost: short messages pass, and long ones end with retry_exceeded",
            set_mtu(netdev, active));
  } else if (active < most && fitting(*mtu, header_bytes) < most) {
    r.note("mtu", value + "; the device could do " + std::to_string(most),
           "more bytes in a packet are fewer packets, and more throughput", set_mtu(netdev, most));
  } else {
    r.ok("mtu", value, "packets that are longer than the interface's MTU are lost");
  }
}

}  // namespace doctor
