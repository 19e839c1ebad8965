#include "checks.hpp"

#include <cstddef>
#include <optional>
#include <string_view>

namespace doctor {
namespace {

/// Returns a byte of the configuration space; 0 beyond what may be read.
unsigned byte_at(std::string_view config, std::size_t at) noexcept {
  return at < config.size() ? static_cast<unsigned char>(config[at]) : 0;
}

/// Returns the Device Control register of the PCI Express capability (PCI Express Base
/// Specification, 7.5.3.4). None: the file is cut short, as it is for users without privileges.
std::optional<unsigned> device_control(std::string_view config) noexcept {
  constexpr std::size_t capabilities = 0x34;
  constexpr unsigned express = 0x10;
  constexpr int capabilities_max = 48;
  std::size_t at = byte_at(config, capabilities) & ~3u;
  for (int n = 0; n < capabilities_max && at != 0; ++n) {
    if (at + 10 > config.size()) return std::nullopt;
    if (byte_at(config, at) == express) {
      return byte_at(config, at + 8) | byte_at(config, at + 9) << 8;
    }
    at = byte_at(config, at + 1) & ~3u;
  }
  return std::nullopt;
}

void check_ordering(const subject& s, report& r) {
  const auto config = s.files.bytes(s.device->folder() + "/device/config");
  if (!config) return;
  const std::string why =
      "with relaxed ordering writes of the device may pass each other on the bus; some hosts reach "
      "the device's rate only so";
  const auto control = device_control(*config);
  constexpr unsigned enable_relaxed_ordering = 1u << 4;
  if (!control) {
    r.note("relaxed_ordering", "the PCI Express registers cannot be read by this user", why,
           "sudo cordma-doctor");
  } else if ((*control & enable_relaxed_ordering) != 0) {
    r.ok("relaxed_ordering", "the device may use it, where memory is registered with it", why);
  } else {
    const std::string address = s.files.link_name(s.device->folder() + "/device");
    r.note("relaxed_ordering", "switched off in the device's PCI Express registers", why,
           "sudo setpci -s " + (address.empty() ? "DEVICE" : address) + " CAP_EXP+8.w=10:10");
  }
}

void check_iommu(const subject& s, report& r) {
  const std::string why =
      "with an IOMMU that translates, each registration makes a mapping, and each access needs it";
  const std::string group = s.device->folder() + "/device/iommu_group";
  if (!s.files.has(group)) {
    r.ok("iommu", "none translates for the device", why);
    return;
  }
  const std::string type = s.files.text(group + "/type").value_or("unknown");
  if (type == "identity") {
    r.ok("iommu", "on, without translation (identity)", why);
  } else {
    r.note("iommu", "translates for the device (" + type + ")", why,
           "boot with iommu=pt, unless the host must be safe from its devices");
  }
}

}  // namespace

void check_pci(const subject& s, report& r) {
  if (s.kernel_device() == nullptr || !s.files.has(s.device->folder() + "/device")) return;
  check_iommu(s, r);
  check_ordering(s, r);
}

}  // namespace doctor
