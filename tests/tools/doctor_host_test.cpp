// Faults of a host's limits, buses and memory, each in files made for it: cordma-doctor names them.

#include "doctor_machine.hpp"

#include "doctor/checks.hpp"
#include "doctor/dcb.hpp"

#include <linux/dcbnl.h>
#include <linux/rtnetlink.h>

#include <cerrno>
#include <cstring>
#include <vector>

using namespace cordma::test;
using doctor::severity;

namespace {

constexpr std::uint64_t kib = 1024;

cordma::failure ring_failure(int error) { return cordma::errno_failure(error, "io_uring_setup"); }

/// A configuration space whose PCI Express capability, second in the list, has this register.
std::string config_space(unsigned device_control) {
  std::string space(256, '\0');
  space[0x34] = 0x40;
  space[0x40] = 0x01;  // Power management.
  space[0x41] = 0x60;
  space[0x60] = 0x10;  // PCI Express.
  space[0x68] = char(device_control & 0xff);
  space[0x69] = char(device_control >> 8);
  return space;
}

void append_bytes(std::vector<std::byte>& to, const void* data, std::size_t bytes) {
  const auto* const begin = static_cast<const std::byte*>(data);
  to.insert(to.end(), begin, begin + bytes);
}

/// The answer of the kernel about an interface with PFC on these priorities.
std::vector<std::byte> dcb_answer(std::uint8_t priorities) {
  ieee_pfc pfc{};
  pfc.pfc_en = priorities;
  const nlattr inner{.nla_len = sizeof(nlattr) + sizeof pfc, .nla_type = DCB_ATTR_IEEE_PFC};
  const nlattr outer{.nla_len = std::uint16_t(sizeof(nlattr) + inner.nla_len),
                     .nla_type = DCB_ATTR_IEEE | NLA_F_NESTED};
  const std::array<char, 8> name{'e', 't', 'h', '0'};
  const nlattr named{.nla_len = sizeof(nlattr) + sizeof name, .nla_type = DCB_ATTR_IFNAME};
  nlmsghdr head{};
  head.nlmsg_type = RTM_GETDCB;
  const dcbmsg dcb{};
  std::vector<std::byte> all;
  append_bytes(all, &head, sizeof head);
  append_bytes(all, &dcb, sizeof dcb);
  append_bytes(all, &named, sizeof named);
  append_bytes(all, name.data(), name.size());
  append_bytes(all, &outer, sizeof outer);
  append_bytes(all, &inner, sizeof inner);
  append_bytes(all, &pfc, sizeof pfc);
  head.nlmsg_len = std::uint32_t(all.size());
  std::memcpy(all.data(), &head, sizeof head);
  return all;
}

}  // namespace

TEST_CASE("too little memory that may be locked is named, with the ways to raise it", "[tools]") {
  rnic m;
  doctor::process_facts& p = m.subject.process;
  const auto memlock = [&m] { return finding_of(doctor::check_limits, m.subject, "memlock"); };
  p.memlock_bytes = p.memlock_bytes_hard = 64 * kib;
  check_finding(
      memlock(), severity::error,
      "RLIMIT_MEMLOCK is 64 KiB; one runtime needs 2.0 MiB, with its queues and ring 2.3 MiB",
      "/etc/security/limits.d/rdma.conf");
  CHECK_THAT(memlock().mend, !Catch::Matchers::Contains("ulimit -l"));
  p.memlock_bytes_hard = doctor::process_facts::unlimited;
  check_finding(memlock(), severity::error, "64 KiB", "ulimit -l unlimited");
  p.memlock_bytes = 8192 * kib;
  check_finding(memlock(), severity::note, "8.0 MiB", "LimitMEMLOCK=infinity");
  p.memlock_bytes = 2100 * kib;
  check_finding(memlock(), severity::warning, "which some drivers and kernels count", "memlock");
  p.memlock_bytes = 64 * kib;
  m.device().is_in_kernel = false;
  check_finding(memlock(), severity::warning, "a real device would", "ulimit -l unlimited");
  p.may_lock_all = true;
  check_finding(memlock(), severity::ok, "CAP_IPC_LOCK lifts the limit", "");
}

TEST_CASE("too few descriptors are named", "[tools]") {
  rnic m;
  const auto descriptors = [&m](std::uint64_t limit) {
    m.subject.process.descriptors = limit;
    return finding_of(doctor::check_limits, m.subject, "descriptors");
  };
  check_finding(descriptors(8), severity::error, "RLIMIT_NOFILE is 8", "ulimit -n");
  check_finding(descriptors(256), severity::warning, "RLIMIT_NOFILE is 256", "ulimit -n");
  check_finding(descriptors(4096), severity::ok, "RLIMIT_NOFILE is 4096", "");
}

TEST_CASE("a control group's limit of RDMA objects is named, also that of a group above",
          "[tools]") {
  const rnic m;
  const auto objects = [&m] {
    return finding_of(doctor::check_cgroups, m.subject, "cgroup.hca_object");
  };
  CHECK(objects().value == "no finding");
  m.put("/proc/self/cgroup", "0::/pod/container\n");
  m.folder("/sys/fs/cgroup/pod/container");
  m.put("/sys/fs/cgroup/pod/rdma.max", "rxe0 hca_handle=1\nmlx5_0 hca_handle=max hca_object=10\n");
  m.put("/sys/fs/cgroup/pod/rdma.current", "mlx5_0 hca_handle=1 hca_object=6\n");
  check_finding(objects(), severity::error, "/pod/rdma.max allows mlx5_0 10, in use are 6",
                "echo 'mlx5_0 hca_object=max' | sudo tee /sys/fs/cgroup/pod/rdma.max");
  m.put("/sys/fs/cgroup/pod/container/rdma.max", "mlx5_0 hca_object=100\n");  // Above it counts.
  check_finding(objects(), severity::error, "/pod/rdma.max allows mlx5_0 10, in use are 6", "");
  m.put("/sys/fs/cgroup/pod/rdma.current", "");
  check_finding(objects(), severity::note, "in use are 0", "");
  m.put("/proc/self/cgroup", "9:cpu,rdma:/old\n0::/\n");  // Version 1.
  m.put("/sys/fs/cgroup/rdma/old/rdma.max", "mlx5_0 hca_handle=0 hca_object=max\n");
  check_finding(finding_of(doctor::check_cgroups, m.subject, "cgroup.hca_handle"), severity::error,
                "/sys/fs/cgroup/rdma/old/rdma.max allows mlx5_0 0", "hca_handle=max");
  CHECK(objects().value == "no finding");
}

TEST_CASE("a control group without memory for a runtime is named", "[tools]") {
  const rnic m;
  const auto memory = [&m] {
    return finding_of(doctor::check_cgroups, m.subject, "cgroup.memory");
  };
  m.put("/proc/self/cgroup", "0::/pod\n");
  m.put("/sys/fs/cgroup/pod/memory.max", "67108864\n");
  m.put("/sys/fs/cgroup/pod/memory.current", "66060288\n");
  check_finding(memory(), severity::error, "/sys/fs/cgroup/pod leaves 1.0 MiB", "raise memory.max");
  m.put("/sys/fs/cgroup/pod/memory.current", "1048576\n");
  check_finding(memory(), severity::ok, "leaves 63.0 MiB", "");
  m.put("/sys/fs/cgroup/pod/memory.max", "max\n");
  CHECK(memory().value == "no finding");
}

TEST_CASE("what forbids io_uring is named, with the way to allow it", "[tools]") {
  rnic m;
  doctor::process_facts& p = m.subject.process;
  const auto waiting = [&m] { return finding_of(doctor::check_waiting, m.subject, "waiting"); };
  check_finding(waiting(), severity::ok, "io_uring", "");
  p.ring_failure = ring_failure(EPERM);
  check_finding(waiting(), severity::warning, "a security module", "");
  m.put("/proc/self/status", "Name:\tdoctor\nSeccomp:\t2\nSeccomp_filters:\t1\n");
  check_finding(waiting(), severity::warning, "epoll, because a seccomp filter forbids",
                "--security-opt seccomp=");
  p.ring_failure = ring_failure(ENOSYS);
  check_finding(waiting(), severity::warning, "a seccomp filter forbids", "io_uring_register");
  m.put("/proc/self/status", "Seccomp:\t0\n");
  m.put("/proc/sys/kernel/osrelease", "4.18.0\n");
  check_finding(waiting(), severity::warning, "the kernel, 4.18.0, is without it", "Linux 5.13");
  p.ring_failure = ring_failure(ENOMEM);
  check_finding(waiting(), severity::error, "Cannot allocate memory", "ulimit -l");
  p.ring_failure = ring_failure(EMFILE);
  check_finding(waiting(), severity::error, "Too many open files", "ulimit -n");
  p.ring_failure = ring_failure(EPERM);
  m.put("/proc/sys/kernel/io_uring_disabled", "2\n");
  check_finding(waiting(), severity::warning, "kernel.io_uring_disabled is 2",
                "sysctl kernel.io_uring_disabled=0");
  p.backend_variable = "io_uring";
  check_finding(waiting(), severity::error, "CORDMA_IO_BACKEND says io_uring", "sysctl");
  p.backend_variable = "epoll";
  check_finding(waiting(), severity::note, "epoll, because CORDMA_IO_BACKEND", "unset");
  p.backend_variable = "select";
  check_finding(waiting(), severity::error, "'select'", "unset CORDMA_IO_BACKEND");
}

TEST_CASE("ECN, PFC and DSCP are read where files or the kernel tell them", "[tools]") {
  rnic m;
  const auto found = [&m](const char* check) {
    return finding_of(doctor::check_congestion, m.subject, check);
  };
  CHECK(found("congestion.ecn").value == "no finding");
  CHECK(found("congestion.pfc").value == "no finding");
  const std::string ecn = "/sys/class/net/eth0/ecn/";
  m.put(ecn + "roce_np/enable/3", "1\n");
  m.put(ecn + "roce_rp/enable/3", "0\n");
  check_finding(found("congestion.ecn"), severity::warning, "that notify: 3, that react: none",
                "/ecn/roce_rp/enable/3");
  m.put(ecn + "roce_rp/enable/3", "1\n");
  check_finding(found("congestion.ecn"), severity::ok, "that notify: 3, that react: 3", "");
  m.put("/sys/class/net/eth0/qos/pfc", "0,0,0,0,0,0,0,0\n");
  check_finding(found("congestion.pfc"), severity::note, "none", "dcb pfc set dev eth0");
  m.put("/sys/class/net/eth0/qos/pfc", "0,0,0,1,0,1,0,0\n");
  check_finding(found("congestion.pfc"), severity::ok, "priorities with PFC: 35", "");
  m.device().pfc = std::uint8_t{1 << 4};
  check_finding(found("congestion.pfc"), severity::ok, "priorities with PFC: 4", "");
  check_finding(found("congestion.dscp"), severity::note, "traffic class 0, DSCP 0",
                "CORDMA_TRAFFIC_CLASS=106");
  m.device().options.fabric.traffic_class = std::uint8_t{106};
  m.put("/sys/kernel/config/rdma_cm/mlx5_0/ports/1/default_roce_tos", "104\n");
  check_finding(found("congestion.dscp"), severity::ok,
                "traffic class 106, DSCP 26; rdma_cm's default is 104", "");
  const std::string counters = "/sys/class/infiniband/mlx5_0/ports/1/hw_counters/";
  m.put(counters + "out_of_sequence", "7\n");
  check_finding(found("congestion.counters"), severity::ok, "out_of_sequence 7", "");
  m.put(counters + "packet_seq_err", "1\n");
  check_finding(found("congestion.counters"), severity::note, "packet_seq_err 1", "PFC and ECN");
}

TEST_CASE("the kernel's answer about PFC is read, and a short one is none", "[tools]") {
  const std::vector<std::byte> whole = dcb_answer(0x18);
  CHECK(doctor::parse_pfc(whole) == 0x18);
  for (std::size_t n = 0; n < whole.size(); ++n)
    CHECK_FALSE(doctor::parse_pfc(std::span{whole}.first(n)));
  std::vector<std::byte> other = whole;
  other[offsetof(nlmsghdr, nlmsg_type)] = std::byte{NLMSG_ERROR};
  CHECK_FALSE(doctor::parse_pfc(other));
  CHECK_FALSE(doctor::read_pfc("lo"));
}

TEST_CASE("CPUs on another NUMA node than the device's are named", "[tools]") {
  rnic m;
  const auto numa = [&m](std::vector<unsigned> cpus) {
    m.subject.process.cpus = std::move(cpus);
    return finding_of(doctor::check_numa, m.subject, "numa");
  };
  check_finding(numa({0, 1}), severity::ok, "no node", "");
  m.put("/sys/class/infiniband/mlx5_0/device/numa_node", "1\n");
  m.put("/sys/devices/system/node/node1/cpulist", "4-7,12\n");
  check_finding(numa({0, 1, 2}), severity::warning,
                "mlx5_0 is on node 1 (CPUs 4-7,12); 0 of the 3 CPUs allowed are there",
                "numactl --cpunodebind=1");
  check_finding(numa({3, 4}), severity::note, "1 of the 2", "numactl");
  check_finding(numa({5, 12}), severity::ok, "2 of the 2", "");
  m.put("/sys/class/infiniband/mlx5_0/device/numa_node", "-1\n");
  check_finding(numa({0}), severity::ok, "no node", "");
}

TEST_CASE("an IOMMU that translates, and strict ordering, are named", "[tools]") {
  const rnic m;
  const std::string device = "/sys/class/infiniband/mlx5_0/device/";
  const auto found = [&m](const char* check) {
    return finding_of(doctor::check_pci, m.subject, check);
  };
  m.put(device + "config", config_space(0x2810));
  check_finding(found("iommu"), severity::ok, "none translates", "");
  check_finding(found("relaxed_ordering"), severity::ok, "may use it", "");
  m.put(device + "config", config_space(0x2800));
  check_finding(found("relaxed_ordering"), severity::note, "switched off", "setpci");
  m.put(device + "config", config_space(0x2810).substr(0, 64));
  check_finding(found("relaxed_ordering"), severity::note, "cannot be read", "sudo");
  m.put(device + "iommu_group/type", "DMA-FQ\n");
  check_finding(found("iommu"), severity::note, "translates for the device (DMA-FQ)", "iommu=pt");
  m.put(device + "iommu_group/type", "identity\n");
  check_finding(found("iommu"), severity::ok, "identity", "");
}

TEST_CASE("a capability list that goes in circles ends", "[tools]") {
  const rnic m;
  std::string space = config_space(0);
  space[0x41] = 0x40;
  m.put("/sys/class/infiniband/mlx5_0/device/config", space);
  check_finding(finding_of(doctor::check_pci, m.subject, "relaxed_ordering"), severity::note,
                "cannot be read", "sudo");
}

TEST_CASE("a clock that is read by system calls is named", "[tools]") {
  const file_tree tree;
  const doctor::subject s{.files = tree.machine()};
  const std::string folder = "/sys/devices/system/clocksource/clocksource0/";
  const auto clock = [&s] { return finding_of(doctor::check_clock, s, "clock"); };
  tree.put(folder + "current_clocksource", "tsc\n");
  check_finding(clock(), severity::ok, "tsc", "");
  tree.put(folder + "current_clocksource", "hpet\n");
  check_finding(clock(), severity::warning, "hpet: each reading is a system call", "tsc=reliable");
  tree.put(folder + "available_clocksource", "hpet tsc acpi_pm\n");
  check_finding(clock(), severity::warning, "hpet", "echo tsc | sudo tee");
}

TEST_CASE("a machine without huge pages is told how to get them", "[tools]") {
  const file_tree tree;
  const doctor::subject s{.files = tree.machine()};
  const auto pages = [&s] { return finding_of(doctor::check_huge_pages, s, "huge_pages"); };
  tree.put("/proc/meminfo", "HugePages_Free:        0\nHugepagesize:       2048 kB\n");
  tree.put("/sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]\n");
  check_finding(pages(), severity::note, "0 free of 2048 kB; transparent ones: never",
                "transparent_hugepage/enabled");
  tree.put("/proc/meminfo", "HugePages_Free:       12\nHugepagesize:       2048 kB\n");
  check_finding(pages(), severity::ok, "12 free", "");
  tree.put("/proc/meminfo", "HugePages_Free:        0\nHugepagesize:       2048 kB\n");
  tree.put("/sys/kernel/mm/transparent_hugepage/enabled", "[always] madvise never\n");
  check_finding(pages(), severity::ok, "transparent ones: always", "");
}

TEST_CASE("a GPU without a module of its peer memory is named", "[tools]") {
  const file_tree tree;
  const doctor::subject s{.files = tree.machine()};
  const auto peer = [&s] { return finding_of(doctor::check_peer_memory, s, "peer_memory"); };
  check_finding(peer(), severity::ok, "no GPU", "");
  tree.folder("/sys/module/nvidia");
  check_finding(peer(), severity::note, "an NVIDIA GPU", "modprobe nvidia_peermem");
  tree.folder("/sys/module/nvidia_peermem");
  check_finding(peer(), severity::ok, "nvidia_peermem", "");
}
