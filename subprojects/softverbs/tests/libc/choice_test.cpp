#include "kernel_double.hpp"
#include "machine_double.hpp"
#include "rdma_cm.hpp"

#include <catch2/catch.hpp>

#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <cerrno>
#include <cstdlib>

// A process decides only once whose rdma_cm it uses, so each case has a process of its own.

namespace {

bool is_kernels(int fd) {
  struct stat is{};
  return ::fstat(fd, &is) == 0 && is.st_rdev == makedev(1, 3) && machine::channels() == 0;
}

dev_t device_of(int fd) {
  struct stat is{};
  return ::fstat(fd, &is) == 0 ? is.st_rdev : ~dev_t{0};
}

}  // namespace

TEST_CASE("the kernel's rdma_cm is used where it can be opened, from then on", "[libc]") {
  CHECK(rdma_cm::in_child([] {
          kernel_double_rdma_cm(0);
          if (!is_kernels(rdma_cm::open())) return false;
          kernel_double_rdma_cm(ENODEV);
          return rdma_cm::open() == -1 && errno == ENODEV && machine::channels() == 0;
        }) == 0);
}

TEST_CASE("softverbs' rdma_cm is used where the kernel's cannot be opened, from then on",
          "[libc]") {
  for (const int error : {ENOENT, EACCES, EPERM, ENXIO, ENODEV})
    CHECK(rdma_cm::in_child([error] {
            kernel_double_rdma_cm(error);
            if (!rdma_cm::is_channel(rdma_cm::open())) return false;
            kernel_double_rdma_cm(0);
            return rdma_cm::is_channel(rdma_cm::open());
          }) == 0);
}

TEST_CASE("an error that passes decides nothing", "[libc]") {
  for (const int error : {EINTR, EMFILE, ENFILE, ENOMEM})
    CHECK(rdma_cm::in_child([error] {
            kernel_double_rdma_cm(error);
            if (rdma_cm::open() != -1 || errno != error) return false;
            kernel_double_rdma_cm(0);
            return is_kernels(rdma_cm::open());
          }) == 0);
}

TEST_CASE("SOFTVERBS_CM=soft asks the kernel for nothing", "[libc]") {
  CHECK(rdma_cm::in_child([] {
          ::setenv("SOFTVERBS_CM", "soft", 1);
          kernel_double_rdma_cm(0);
          const long before = kernel_double_opens();
          return rdma_cm::is_channel(rdma_cm::open()) && kernel_double_opens() == before;
        }) == 0);
}

TEST_CASE("SOFTVERBS=off leaves rdma_cm to the kernel, present or not", "[libc]") {
  CHECK(rdma_cm::in_child([] {
          ::setenv("SOFTVERBS", "off", 1);
          ::setenv("SOFTVERBS_CM", "soft", 1);
          if (rdma_cm::open() != -1 || errno != ENOENT) return false;
          kernel_double_rdma_cm(0);
          return is_kernels(rdma_cm::open());
        }) == 0);
}

TEST_CASE("a channel has the device number of the kernel's rdma_cm, where there is one", "[libc]") {
  CHECK(rdma_cm::in_child([] {
          kernel_double_misc("125 vga_arbiter\n 58 rdma_cm\n236 device-mapper\n");
          return device_of(rdma_cm::open()) == makedev(10, 58);
        }) == 0);
  CHECK(rdma_cm::in_child([] {
          kernel_double_misc("rdma_cm\n 58 not_rdma_cm\n59 rdma_cm_more\n");
          const int fd = rdma_cm::open();
          return device_of(fd) == 0 && rdma_cm::is_channel(fd);
        }) == 0);
}

TEST_CASE("what is no channel goes to the next library in line", "[libc]") {
  const long before = kernel_double_opens();
  const int fd = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  CHECK(fd >= 0);
  CHECK(kernel_double_opens() == before + 1);
  ::close(fd);
}
