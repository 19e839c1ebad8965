// Faults of devices, ports, GIDs and MTUs, each in files made for it: cordma-doctor names them.

#include "doctor_machine.hpp"

#include "doctor/checks.hpp"
#include "support/child.hpp"

using namespace cordma::test;
using doctor::severity;

namespace {

cordma::failure no_device() {
  return {.code = cordma::errc::no_device, .call = "ibv_get_device_list"};
}

}  // namespace

TEST_CASE("a healthy RNIC has nothing to mend", "[tools]") {
  rnic m;
  m.subject.process.cpus = {0, 1};
  m.device().options.fabric.traffic_class = std::uint8_t{106};
  doctor::report r;
  for (const auto check : {&doctor::check_devices, &doctor::check_gid, &doctor::check_mtu,
                           &doctor::check_limits, &doctor::check_waiting, &doctor::check_congestion,
                           &doctor::check_numa, &doctor::check_pci}) {
    check(m.subject, r);
  }
  for (const doctor::finding& f : r.all()) {
    INFO(f.check << ": " << f.value);
    CHECK(f.severity == severity::ok);
    CHECK(f.mend.empty());
  }
  CHECK(r.all().size() >= 8);
}

TEST_CASE("a port that is down is named, with the command that raises it", "[tools]") {
  rnic m;
  m.put("/sys/class/infiniband/mlx5_0/device/net/eth0/mtu", "1500");
  m.port().info.state = IBV_PORT_DOWN;
  check_finding(finding_of(doctor::check_devices, m.subject, "port"), severity::error,
                "port 1 down", "ip link set eth0 up");
  m.port().info.link_layer = IBV_LINK_LAYER_INFINIBAND;
  m.port().info.state = IBV_PORT_INIT;
  check_finding(finding_of(doctor::check_devices, m.subject, "port"), severity::error,
                "port 1 init, InfiniBand", "opensm");
}

TEST_CASE("a second port that is down is worth a note, no more", "[tools]") {
  rnic m;
  m.device().ports.push_back(m.port());
  m.device().ports.back().info.number = 2;
  m.device().ports.back().info.state = IBV_PORT_DOWN;
  check_finding(finding_of(doctor::check_devices, m.subject, "port"), severity::note,
                "port 2 down, Ethernet (RoCE), MTU 4096, not used", "");
}

TEST_CASE("a machine without devices is told how to get one", "[tools]") {
  const file_tree tree;
  doctor::subject s{.files = tree.machine(), .device_failure = no_device()};
  const auto device = [&s] { return finding_of(doctor::check_devices, s, "device"); };
  check_finding(device(), severity::error, "ibv_get_device_list", "modprobe rdma_rxe");
  tree.folder("/sys/class/infiniband/mlx5_0");
  check_finding(device(), severity::error, "ibv_get_device_list", "device.file");
  s.wanted_device = "mlx5_1";
  check_finding(device(), severity::error, "ibv_get_device_list", "name a device that there is");
  s.device_failure = cordma::errno_failure(EINVAL, "getenv");
  check_finding(device(), severity::error, "getenv", "unset CORDMA_DEVICE");
}

TEST_CASE("a kernel's device that is passed over for one in user space is named", "[tools]") {
  rnic m;
  m.device().info.name = "soft0";
  m.device().is_in_kernel = false;
  check_finding(finding_of(doctor::check_devices, m.subject, "device"), severity::note, "soft0",
                "");
  check_finding(finding_of(doctor::check_devices, m.subject, "device.others"), severity::warning,
                "mlx5_0", "--device");
}

TEST_CASE("a driver's network half without its RDMA half is named", "[tools]") {
  const file_tree tree;
  tree.folder("/sys/module/mlx5_core");
  const doctor::subject s{.files = tree.machine(), .device_failure = no_device()};
  check_finding(finding_of(doctor::check_modules, s, "modules.driver"), severity::error,
                "mlx5_core without mlx5_ib", "modprobe mlx5_ib");
  tree.folder("/sys/module/mlx5_ib");
  CHECK(finding_of(doctor::check_modules, s, "modules.driver").value == "no finding");
}

TEST_CASE("a device without ib_uverbs is told to load it", "[tools]") {
  const rnic m;
  check_finding(finding_of(doctor::check_modules, m.subject, "modules"), severity::error,
                "ib_uverbs is not loaded", "modprobe ib_uverbs");
  check_finding(finding_of(doctor::check_device_files, m.subject, "device.file"), severity::error,
                "none in /dev/infiniband", "modprobe ib_uverbs");
  m.folder("/sys/module/ib_uverbs");
  check_finding(finding_of(doctor::check_modules, m.subject, "modules"), severity::ok, "ib_uverbs",
                "");
}

TEST_CASE("a device's file that is missing, or may not be opened, is named", "[tools]") {
  rnic m;
  m.put("/sys/class/infiniband_verbs/uverbs0/ibdev", "mlx5_0\n");
  check_finding(finding_of(doctor::check_device_files, m.subject, "device.file"), severity::error,
                "uverbs0 is missing", "modprobe ib_uverbs; in a container: --device");
  m.device().info.name = "mlx5_1";
  check_finding(finding_of(doctor::check_device_files, m.subject, "device.file"), severity::warning,
                "uverbs0 is missing", "modprobe ib_uverbs");
  m.device().is_in_kernel = false;
  check_finding(finding_of(doctor::check_device_files, m.subject, "device.file"), severity::error,
                "uverbs0 is missing", "modprobe ib_uverbs");
  m.device().info.name = "mlx5_0";
  m.device().is_in_kernel = true;
  m.put("/dev/infiniband/uverbs0", "");
  m.put("/dev/infiniband/rdma_cm", "");
  const auto both = [&m] {
    std::string text;
    for (const char* check : {"device.file", "device.rdma_cm"}) {
      const auto f = finding_of(doctor::check_device_files, m.subject, check);
      text += std::string{to_string(f.severity)} + ' ' + f.value + " | " + f.mend + '\n';
    }
    return text;
  };
  CHECK_THAT(both(), Catch::Matchers::Contains("uverbs0: may be opened, for mlx5_0") &&
                         Catch::Matchers::Contains("ok /dev/infiniband/rdma_cm: may be opened"));
  for (const char* name : {"uverbs0", "rdma_cm"})
    std::filesystem::permissions(m.root.path / "dev/infiniband" / name,
                                 std::filesystem::perms::none);
  // Root may open whatever it likes, as long as it has its capabilities.
  const std::string denied = text_of_child(
      [&]() -> std::string { return limit_memlock(1 << 16) ? both() : "kept its privileges"; });
  CHECK_THAT(denied, Catch::Matchers::Contains("error open: Permission denied") &&
                         Catch::Matchers::Contains("chgrp rdma") &&
                         Catch::Matchers::Contains("usermod -aG rdma") &&
                         Catch::Matchers::Contains("note /dev/infiniband/rdma_cm"));
}

TEST_CASE("the GID in use is named with the reason and its interface", "[tools]") {
  rnic m;
  const auto gid = [&m] { return finding_of(doctor::check_gid, m.subject, "gid"); };
  check_finding(gid(), severity::ok, "row 3, ::ffff:10.0.0.1, RoCE v2, of eth0: chosen because",
                "");
  m.device().options.gid_index = 3;
  check_finding(gid(), severity::ok, "chosen because gid_index names it", "");
}

TEST_CASE("a wrong GID is named, with the rows that would do", "[tools]") {
  rnic m;
  const auto gid = [&m] { return finding_of(doctor::check_gid, m.subject, "gid"); };
  m.device().options.gid_index = 2;
  check_finding(gid(), severity::warning, "RoCE v1", "row 3, ::ffff:10.0.0.1, RoCE v2");
  m.device().options.gid_index = 9;
  check_finding(gid(), severity::error, "gid_index 9 is not in the port's table", "--gid-index");
  m.device().options.gid_index.reset();
  m.put("/sys/class/net/eth0/operstate", "down\n");
  check_finding(gid(), severity::error, "eth0 is down", "ip link set eth0 up");
  m.put("/sys/class/net/eth0/operstate", "up\n");
  m.port().gids.resize(2);
  check_finding(gid(), severity::warning, "row 1, fe80::1, RoCE v2", "ip address add");
  m.port().gids.clear();
  check_finding(gid(), severity::error, "no address", "ip address add");
}

TEST_CASE("an MTU that the interface does not carry is named", "[tools]") {
  rnic m;
  const auto mtu = [&m] { return finding_of(doctor::check_mtu, m.subject, "mtu"); };
  check_finding(mtu(), severity::ok, "the port's is 4096, that of eth0 9000", "");
  m.put("/sys/class/net/eth0/mtu", "1500\n");
  check_finding(mtu(), severity::error, "that of eth0 1500, into which 1024 fits",
                "ip link set eth0 mtu 4192");
  m.port().info.mtu_active = IBV_MTU_1024;
  check_finding(mtu(), severity::note, "the device could do 4096", "ip link set eth0 mtu 4192");
  m.put("/sys/class/net/eth0/mtu", "1083\n");
  check_finding(mtu(), severity::error, "into which 512 fits", "mtu 1120");
  m.put("/sys/class/net/eth0/mtu", "1084\n");
  check_finding(mtu(), severity::note, "that of eth0 1084", "mtu 4192");
  m.put("/sys/class/net/eth0/ifindex", "4\n");
  check_finding(mtu(), severity::note, "the network interface's is unknown", "");
  m.port().info.link_layer = IBV_LINK_LAYER_INFINIBAND;
  check_finding(mtu(), severity::ok, "the port's is 1024", "");
}
