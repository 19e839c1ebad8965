#pragma once

#include "doctor/finding.hpp"
#include "doctor/subject.hpp"
#include "support/temporary_folder.hpp"

#include <arpa/inet.h>

#include <catch2/catch.hpp>

#include <filesystem>
#include <fstream>
#include <string>

namespace cordma::test {

/// A machine of a test's own: the files that it wants, below a folder that is gone afterwards.
struct file_tree {
  void put(const std::string& path, const std::string& content) const {
    const std::filesystem::path file = root.path / std::filesystem::path{path}.relative_path();
    std::filesystem::create_directories(file.parent_path());
    std::ofstream{file, std::ios::binary} << content;
  }
  void folder(const std::string& path) const {
    std::filesystem::create_directories(root.path / std::filesystem::path{path}.relative_path());
  }
  [[nodiscard]] doctor::machine machine() const { return doctor::machine{root.path}; }

  temporary_folder root;
};

inline verbs::gid_entry gid_row(std::uint32_t index, const char* address, verbs::gid_type type,
                                std::uint32_t ifindex = 3) {
  verbs::gid_entry row{.index = index, .type = type, .netdev_ifindex = ifindex};
  REQUIRE(::inet_pton(AF_INET6, address, row.gid.raw) == 1);
  return row;
}

/// mlx5_0 on eth0, as RNICs are: four rows, and one RoCE v2 address of IPv4.
struct rnic : file_tree {
  rnic() {
    put("/sys/class/net/eth0/ifindex", "3\n");
    put("/sys/class/net/eth0/operstate", "up\n");
    put("/sys/class/net/eth0/mtu", "9000\n");
    folder("/sys/class/infiniband/mlx5_0");
    doctor::device_facts d;
    d.info.name = "mlx5_0";
    d.is_in_kernel = true;
    d.limits.port_count = 1;
    doctor::port_facts port;
    port.info = {.number = 1,
                 .state = IBV_PORT_ACTIVE,
                 .link_layer = IBV_LINK_LAYER_ETHERNET,
                 .mtu_active = IBV_MTU_4096,
                 .mtu_max = IBV_MTU_4096};
    port.gids = {gid_row(0, "fe80::1", verbs::gid_type::roce_v1),
                 gid_row(1, "fe80::1", verbs::gid_type::roce_v2),
                 gid_row(2, "::ffff:10.0.0.1", verbs::gid_type::roce_v1),
                 gid_row(3, "::ffff:10.0.0.1", verbs::gid_type::roce_v2)};
    d.ports = {port};
    subject.files = machine();
    subject.device = d;
  }
  [[nodiscard]] doctor::device_facts& device() { return *subject.device; }
  [[nodiscard]] doctor::port_facts& port() { return subject.device->ports.front(); }

  doctor::subject subject;
};

/// The finding that a check makes of a machine; a value of "no finding": it makes none.
template <class Check>
doctor::finding finding_of(Check check, const doctor::subject& s, const std::string& name) {
  doctor::report r;
  check(s, r);
  const doctor::finding* const f = r.find(name);
  doctor::finding none;
  none.value = "no finding";
  return f != nullptr ? *f : none;
}

inline void check_finding(const doctor::finding& f, doctor::severity how, const std::string& value,
                          const std::string& mend) {
  INFO(f.check << " is " << to_string(f.severity) << ": " << f.value << " | " << f.mend);
  CHECK(f.severity == how);
  CHECK_THAT(f.value, Catch::Matchers::Contains(value));
  CHECK_THAT(f.mend, Catch::Matchers::Contains(mend));
  if (how == doctor::severity::ok) CHECK(f.mend.empty());
  if (how != doctor::severity::ok) CHECK_FALSE(f.why.empty());
}

}  // namespace cordma::test
