#include <infiniband/verbs.h>

#include <catch2/catch.hpp>

#include <unistd.h>

#include <cerrno>
#include <cstdint>

// Programs that were built with a later rdma-core than the one whose headers are here.

struct ibv_buf;
struct ibv_dmah;
struct ibv_dmah_init_attr;
struct ibv_mr_init_attr;

extern "C" {
ibv_dmah* ibv_alloc_dmah(ibv_context* ctx, ibv_dmah_init_attr* attr);
ibv_mr* ibv_reg_mr_ex(ibv_pd* pd, ibv_mr_init_attr* attr);
int ibv_query_port_speed(ibv_context* ctx, std::uint32_t port, std::uint64_t* speed);
void* ibv_alloc_buf(ibv_pd* pd, std::size_t bytes, ibv_buf** buf);
void ibv_free_buf(ibv_buf* buf);
ibv_mr* ibv_reg_buf_mr(ibv_pd* pd, ibv_buf* buf, void* address, std::size_t bytes, int access);
}

namespace {

/// ibv_mr_init_attr.
struct region {
  std::size_t bytes = 0;
  int access = IBV_ACCESS_LOCAL_WRITE;
  std::uint64_t mask = 0;
  std::uint64_t iova = 0;
  void* address = nullptr;
  int fd = -1;
  std::uint64_t fd_offset = 0;
  ibv_dmah* handle = nullptr;
  ibv_buf* buffer = nullptr;
};
enum : std::uint64_t { iova = 1, address = 2, fd = 4, fd_offset = 8, handle = 16, buffer = 32 };

struct device {
  device() {
    int count = 0;
    ibv_device** const list = ibv_get_device_list(&count);
    REQUIRE(list != nullptr);
    context = ibv_open_device(list[count - 1]);
    ibv_free_device_list(list);
    REQUIRE(context != nullptr);
    pd = ibv_alloc_pd(context);
    REQUIRE(pd != nullptr);
  }
  ~device() {
    CHECK(ibv_dealloc_pd(pd) == 0);
    CHECK(ibv_close_device(context) == 0);
  }
  ibv_mr* reg(region& from) const {
    errno = 0;
    return ibv_reg_mr_ex(pd, reinterpret_cast<ibv_mr_init_attr*>(&from));
  }
  int error_of(region from) const {
    CHECK(reg(from) == nullptr);
    return errno;
  }

  ibv_context* context = nullptr;
  ibv_pd* pd = nullptr;
};

}  // namespace

TEST_CASE("what only other devices have is refused", "[abi]") {
  const device soft0;
  errno = 0;
  CHECK(ibv_alloc_dmah(soft0.context, nullptr) == nullptr);
  CHECK(errno == EOPNOTSUPP);
  std::uint64_t speed = 0;
  CHECK(ibv_query_port_speed(soft0.context, 1, &speed) == EOPNOTSUPP);
}

TEST_CASE("ibv_reg_mr_ex registers an address", "[abi]") {
  const device soft0;
  std::uint64_t word = 0;
  region wanted;
  wanted.bytes = sizeof word;
  wanted.address = &word;
  wanted.mask = address | (GENERATE(std::uint64_t{0}, std::uint64_t{1}) * iova);
  ibv_mr* const mr = soft0.reg(wanted);
  REQUIRE(mr != nullptr);
  CHECK(mr->addr == &word);
  CHECK(mr->length == sizeof word);
  CHECK(ibv_dereg_mr(mr) == 0);
}

TEST_CASE("ibv_reg_mr_ex refuses what makes no sense, as libibverbs does", "[abi]") {
  const device soft0;
  std::uint64_t word = 0;
  region wanted;
  wanted.bytes = sizeof word;
  wanted.address = &word;
  for (const std::uint64_t mask :
       {std::uint64_t{0}, std::uint64_t{iova}, address | fd_offset, address | fd | fd_offset | iova,
        std::uint64_t{fd}, fd | fd_offset, address | buffer, std::uint64_t{buffer}}) {
    CAPTURE(mask);
    wanted.mask = mask;
    CHECK(soft0.error_of(wanted) == EINVAL);
  }
  for (const std::uint64_t mask : {address | handle, address | 64u}) {
    wanted.mask = mask;
    CHECK(soft0.error_of(wanted) == EOPNOTSUPP);
  }
  wanted.mask = fd | fd_offset | iova;
  CHECK(soft0.error_of(wanted) == EBADF);  // ibv_reg_dmabuf_mr() says so, too.
}

TEST_CASE("a buffer is page-aligned memory, which is registered within its bounds", "[abi]") {
  const device soft0;
  constexpr std::size_t bytes = 5000;
  ibv_buf* handle = nullptr;
  auto* const memory = static_cast<char*>(ibv_alloc_buf(soft0.pd, bytes, &handle));
  REQUIRE(memory != nullptr);
  REQUIRE(handle != nullptr);
  CHECK(reinterpret_cast<std::uintptr_t>(memory) % static_cast<std::size_t>(::getpagesize()) == 0);
  const auto reg = [&](char* from, std::size_t length) {
    errno = 0;
    ibv_mr* const mr = ibv_reg_buf_mr(soft0.pd, handle, from, length, IBV_ACCESS_LOCAL_WRITE);
    if (mr == nullptr) return errno;
    CHECK(mr->addr == from);
    CHECK(ibv_dereg_mr(mr) == 0);
    return 0;
  };
  CHECK(reg(memory, bytes) == 0);
  CHECK(reg(memory + bytes - 1, 1) == 0);
  CHECK(reg(memory - 1, 1) == EINVAL);
  CHECK(reg(memory + bytes, 1) == EINVAL);
  CHECK(reg(memory + 1, bytes) == EINVAL);
  CHECK(reg(memory + 1, ~std::size_t{0}) == EINVAL);
  ibv_pd* const other = ibv_alloc_pd(soft0.context);
  REQUIRE(other != nullptr);
  CHECK(ibv_reg_buf_mr(other, handle, memory, bytes, IBV_ACCESS_LOCAL_WRITE) == nullptr);
  CHECK(errno == EINVAL);
  CHECK(ibv_dealloc_pd(other) == 0);
  ibv_free_buf(handle);
  CHECK(reg(memory, bytes) == EINVAL);  // The buffer is no more.
}
