#include "checks.hpp"

#include <array>

namespace doctor {
namespace {

/// The driver of a network interface, and the module by which the same hardware does RDMA.
struct driver {
  const char* network;
  const char* rdma;
};
constexpr std::array drivers{driver{"mlx5_core", "mlx5_ib"},  driver{"mlx4_core", "mlx4_ib"},
                             driver{"bnxt_en", "bnxt_re"},    driver{"ice", "irdma"},
                             driver{"i40e", "irdma"},         driver{"qede", "qedr"},
                             driver{"hns3", "hns_roce_hw_v2"}};

bool is_loaded(const subject& s, const std::string& module) {
  return s.files.has("/sys/module/" + module);
}

}  // namespace

void check_modules(const subject& s, report& r) {
  const bool has_devices = !s.files.names("/sys/class/infiniband").empty();
  for (const driver& one : drivers) {
    if (!is_loaded(s, one.network) || is_loaded(s, one.rdma)) continue;
    const std::string value = std::string{one.network} + " without " + one.rdma;
    const std::string why = "the network works, and the same hardware's RDMA does not";
    const std::string mend = std::string{"sudo modprobe "} + one.rdma;
    if (has_devices) {
      r.note("modules.driver", value, why, mend);
    } else {
      r.error("modules.driver", value, why, mend);
    }
  }
  if (!has_devices) return;
  // A module that is built into the kernel may have no folder, but its class is there.
  if (is_loaded(s, "ib_uverbs") || s.files.has("/sys/class/infiniband_verbs")) {
    r.ok("modules", "ib_uverbs", "it makes the files in /dev/infiniband");
  } else {
    r.error("modules", "ib_uverbs is not loaded", "it makes the files in /dev/infiniband",
            "sudo modprobe ib_uverbs");
  }
}

}  // namespace doctor
