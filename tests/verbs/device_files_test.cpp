#include "../../lib/verbs/device_files.hpp"
#include "support/temporary_folder.hpp"

#include <catch2/catch.hpp>

#include <cerrno>
#include <filesystem>
#include <fstream>

using Catch::Matchers::Contains;
using cordma::test::temporary_folder;
using cordma::verbs::detail::device_files;
using cordma::verbs::detail::why_unusable;

namespace {

device_files with(int error_of_first, int error_of_second) {
  return {.has_device = true,
          .files = {{"mlx5_0", "/dev/infiniband/uverbs0", error_of_first},
                    {"rxe0", "/dev/infiniband/uverbs1", error_of_second}}};
}

}  // namespace

TEST_CASE("a device whose file cannot be opened is told apart from none, with the way out",
          "[verbs][N9]") {
  const auto denied = why_unusable(with(EACCES, 0), "");
  REQUIRE(denied);
  CHECK(denied->code == std::errc::permission_denied);
  CHECK_THAT(denied->to_string(),
             Contains("mlx5_0 is there") && Contains("no permission on /dev/infiniband/uverbs0") &&
                 Contains("rdma") && Contains("udev rule") &&
                 Contains("--device /dev/infiniband/uverbs0 --device /dev/infiniband/rdma_cm"));
  const auto missing = why_unusable(with(0, ENOENT), "rxe0");
  REQUIRE(missing);
  CHECK(missing->code == std::errc::no_such_file_or_directory);
  CHECK_THAT(missing->to_string(),
             Contains("rxe0 is there") && Contains("/dev/infiniband/uverbs1 is missing") &&
                 Contains("--device /dev/infiniband/uverbs1 --device /dev/infiniband/rdma_cm"));
  const auto otherwise = why_unusable(with(EIO, 0), "");
  REQUIRE(otherwise);
  CHECK_THAT(otherwise->to_string(), Contains("uverbs0 cannot be opened"));
  for (const int error : {EMFILE, ENFILE}) {
    const auto used_up = why_unusable(with(error, 0), "");
    REQUIRE(used_up);
    CHECK_THAT(used_up->to_string(), Contains("ulimit -n") && !Contains("uverbs0"));
  }
}

TEST_CASE("a device that is not there, or can be opened, is not explained away", "[verbs][N9]") {
  CHECK_FALSE(why_unusable(device_files{}, ""));
  CHECK_FALSE(why_unusable(with(0, 0), ""));
  CHECK_FALSE(why_unusable(with(EACCES, 0), "rxe0"));
  CHECK_FALSE(why_unusable(with(EACCES, EACCES), "nonesuch0"));
}

TEST_CASE("a kernel without ib_uverbs is told to load it", "[verbs][N9]") {
  const auto why = why_unusable(device_files{.has_device = true, .files = {}}, "");
  REQUIRE(why);
  CHECK_THAT(why->to_string(), Contains("modprobe ib_uverbs"));
}

TEST_CASE("the kernel's devices are found in sysfs, whether or not they have a file",
          "[verbs][N9]") {
  namespace fs = std::filesystem;
  const temporary_folder folder;
  const fs::path sys = folder.path / "class";
  CHECK_FALSE(device_files::read(sys, folder.path).has_device);
  fs::create_directories(sys / "infiniband" / "rxe0");
  CHECK(device_files::read(sys, folder.path).has_device);
  fs::create_directories(sys / "infiniband_verbs" / "uverbs3");
  std::ofstream{sys / "infiniband_verbs" / "uverbs3" / "ibdev"} << "rxe0\n";
  std::ofstream{sys / "infiniband_verbs" / "abi_version"} << "6\n";

  const device_files without = device_files::read(sys, folder.path);
  REQUIRE(without.files.size() == 1);
  CHECK(without.files[0].device == "rxe0");
  CHECK(without.files[0].path == (folder.path / "infiniband" / "uverbs3").string());
  CHECK(without.files[0].open_error == ENOENT);

  fs::create_directories(folder.path / "infiniband");
  std::ofstream{folder.path / "infiniband" / "uverbs3"} << "";
  CHECK(device_files::read(sys, folder.path).files.at(0).open_error == 0);
}
