#include "verbs/device.hpp"

#include <cordma/base/error.hpp>
#include "support/child.hpp"
#include "support/skip.hpp"
#include "support/verbs_faults.hpp"
#include "verbs/loopback.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <string>

using namespace cordma::verbs;
using namespace cordma::verbs::test;
using Catch::Matchers::Contains;

namespace {

cordma::failure open_failure(std::string_view name) {
  try {
    context ctx{name};
  } catch (const cordma::error& e) {
    return e.failure();
  }
  FAIL("a device was opened");
  return {};
}

}  // namespace

TEST_CASE("a machine without devices is told how to get one", "[verbs][N9]") {
  const auto without_soft0 = [](const char* name) {
    return cordma::test::text_of_child([name]() -> std::string {
      ::setenv("SOFTVERBS", "off", 1);  // NOLINT(concurrency-mt-unsafe): a child has one thread.
      if (!list_devices().empty()) return {};
      const cordma::failure failure = open_failure(name);
      return failure.code == cordma::errc::no_device ? failure.to_string() : "another code";
    });
  };
  for (const char* name : {"", "mlx5_0"}) {
    const std::string said = without_soft0(name);
    if (said.empty()) CORDMA_SKIP("this machine has an RDMA device");
    CHECK_THAT(said, Contains("RNIC") && Contains("rdma_rxe") && Contains("softverbs"));
  }
}

TEST_CASE("device limits are the device's attributes under our names", "[verbs][N9]") {
  ibv_device_attr_ex extended{};
  ibv_device_attr& raw = extended.orig_attr;
  raw.max_qp_wr = 100;
  raw.max_sge = -1;
  raw.max_mr_size = ~0ull;
  raw.phys_port_cnt = 2;
  raw.device_cap_flags = IBV_DEVICE_MEM_WINDOW_TYPE_2B | IBV_DEVICE_XRC;
  CHECK_FALSE(limits_of(extended).atomic_write);
  extended.packet_pacing_caps = {
      .qp_rate_limit_min = 1, .qp_rate_limit_max = 100, .supported_qpts = 1u << IBV_QPT_RC};
  extended.device_cap_flags_ex = std::uint64_t{1} << 40;  // IB_UVERBS_DEVICE_ATOMIC_WRITE
  const device_limits limits = limits_of(extended);
  CHECK(limits.qp_wr_max == 100);
  CHECK(limits.sge_max == 0);
  CHECK(limits.mr_size_max_bytes == ~0ull);
  CHECK(limits.port_count == 2);
  CHECK(limits.memory_window_type_2);
  CHECK(limits.xrc);
  CHECK_FALSE(limits_of(ibv_device_attr_ex{}).xrc);
  CHECK_FALSE(limits.memory_window_type_1);
  CHECK(limits.atomic_write);
  CHECK(limits.rate_limit_max_kbps == 100);
  CHECK(limits.rate_limited_types == 1u << IBV_QPT_RC);
}

TEST_CASE("a path MTU says its bytes", "[verbs]") {
  CHECK(bytes_of(IBV_MTU_256) == 256);
  CHECK(bytes_of(IBV_MTU_4096) == 4096);
  CHECK(bytes_of(ibv_mtu(0)) == 0);
  CHECK(bytes_of(ibv_mtu(6)) == 0);
}

TEST_CASE("a device opens by name and by default, and says what it is", "[verbs][device]") {
  const auto devices = list_devices();
  const auto named = [](const device_info& d) { return d.name == device_name(); };
  REQUIRE(std::any_of(devices.begin(), devices.end(), named));
  context ctx{device_name()};
  CHECK(ctx.name() == device_name());
  CHECK(ctx.limits().qp_wr_max > 0);
  CHECK(ctx.limits().cqe_max > 0);
  CHECK(ctx.limits().qp_rd_atom_max > 0);

  const port_info port = ctx.active_port();
  CHECK(port.is_active());
  CHECK(bytes_of(port.mtu_active) >= 256);
  CHECK(bytes_of(port.mtu_active) <= bytes_of(port.mtu_max));
  CHECK(port.message_max_bytes >= 1u << 20);

  const auto table = ctx.gid_table(port.number);
  REQUIRE_FALSE(table.empty());
  const gid_entry chosen = choose_gid(table);
  if (port.is_ethernet()) CHECK(chosen.type == gid_type::roce_v2);
  CHECK(context{}.limits().port_count >= 1);
}

TEST_CASE("a wrong device name lists what there is", "[verbs][device]") {
  const cordma::failure failure = open_failure("no_such_device");
  CHECK(failure.code == cordma::errc::no_device);
  CHECK_THAT(failure.to_string(), Contains("'no_such_device'") && Contains(device_name()));
}

TEST_CASE("a port that the device lacks is refused", "[verbs][device][N9]") {
  context ctx{device_name()};
  for (const unsigned port : {0u, 200u}) {
    CHECK_THROWS_WITH(ctx.query_port(std::uint8_t(port)), Contains("port " + std::to_string(port)));
    CHECK_THROWS_WITH(ctx.gid_table(std::uint8_t(port)), Contains("port " + std::to_string(port)));
  }
}

TEST_CASE("a device file that cannot be opened is named, with the way out", "[verbs][device]") {
  verbs_faults::fail_call(1, EACCES);
  CHECK_THAT(open_failure(device_name()).to_string(),
             Contains("no permission on /dev/infiniband/"));
  verbs_faults::fail_call(1, ENOENT);
  CHECK_THAT(open_failure(device_name()).to_string(), Contains("is missing"));
  verbs_faults::fail_call(0, 0);
}

TEST_CASE("a user who may not open the device is told so, with the way out",
          "[verbs][device][N9]") {
  if (::geteuid() != 0) CORDMA_SKIP("only root can become another user");
  std::string file;
  {
    context ctx{device_name()};
    file = std::string{"/dev/infiniband/"} + ctx.native_handle()->device->dev_name;
  }
  struct ::stat before{};
  if (::stat(file.c_str(), &before) != 0) CORDMA_SKIP("the device has no file");
  struct ::stat folder{};
  REQUIRE(::stat("/dev/infiniband", &folder) == 0);
  const auto as_nobody = [] {
    return cordma::test::text_of_child([]() -> std::string {
      if (::setgid(65534) != 0 || ::setuid(65534) != 0) return "cannot become nobody";
      return open_failure(device_name()).to_string();
    });
  };
  const std::string way_out = "--device " + file + " --device /dev/infiniband/rdma_cm";
  const std::string denied = "no permission on " + file;
  REQUIRE(::chmod(file.c_str(), 0600) == 0);
  CHECK_THAT(as_nobody(), Contains(denied) && Contains(way_out) && Contains("(often rdma)"));
  REQUIRE(::chmod(file.c_str(), 0666) == 0);
  REQUIRE(::chmod("/dev/infiniband", 0700) == 0);  // libibverbs sees no device then.
  CHECK_THAT(as_nobody(), Contains(denied) && Contains(way_out));
  const std::string listed = cordma::test::text_of_child([]() -> std::string {
    ::setenv("SOFTVERBS", "off", 1);  // NOLINT(concurrency-mt-unsafe): else soft0 is there.
    if (::setgid(65534) != 0 || ::setuid(65534) != 0) return "cannot become nobody";
    return failure_of([] { static_cast<void>(list_devices()); }).to_string();
  });
  CHECK_THAT(listed, Contains(denied) && Contains(way_out));
  CHECK(::chmod("/dev/infiniband", folder.st_mode & 07777) == 0);
  CHECK(::chmod(file.c_str(), before.st_mode & 07777) == 0);
}
