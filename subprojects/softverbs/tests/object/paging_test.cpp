#include "memory/key_table.hpp"
#include "node/node.hpp"
#include "object/context.hpp"
#include "object/soft_verbs.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include <array>
#include <cerrno>
#include <cstdint>
#include <fstream>
#include <initializer_list>
#include <string>

// Regions of a descriptor, and advice about pages on demand.

namespace softverbs {
namespace {

struct paging_device {
  ~paging_device() {
    CHECK(verb::dealloc_pd(pd) == 0);
    close_context(ctx);
  }
  ibv_context* ctx = open_context(verbs_context{});
  ibv_pd* pd = verb::alloc_pd(ctx);
};

const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));

/// A descriptor of memory.
struct file {
  explicit file(std::size_t bytes, unsigned flags = 0)
      : fd{::memfd_create("softverbs test", MFD_CLOEXEC | flags)} {
    REQUIRE(::ftruncate(fd, static_cast<off_t>(bytes)) == 0);
  }
  ~file() { ::close(fd); }
  file(const file&) = delete;
  file& operator=(const file&) = delete;
  int fd;
};

int dmabuf_errno(const paging_device& on, std::uint64_t offset, std::size_t length,
                 std::uint64_t iova, int fd, unsigned access) {
  errno = 0;
  ibv_mr* const mr = verb::reg_dmabuf_mr(on.pd, offset, length, iova, fd, access);
  if (mr == nullptr) return errno;
  CHECK(verb::dereg_mr(mr) == 0);
  return 0;
}

/// The pages of a mapping that are in memory.
std::size_t resident(void* at, std::size_t pages) {
  std::array<unsigned char, 16> present{};
  REQUIRE(::mincore(at, pages * page, present.data()) == 0);
  std::size_t count = 0;
  for (std::size_t i = 0; i < pages; ++i) count += present[i] & 1u;
  return count;
}

/// Lets the kernel make huge pages when they are asked for, where this process may say so.
class huge_pages {
 public:
  explicit huge_pages(unsigned count) {
    std::ifstream{limit} >> before_;
    std::ofstream{limit} << before_ + count;
  }
  ~huge_pages() { std::ofstream{limit} << before_; }
  huge_pages(const huge_pages&) = delete;
  huge_pages& operator=(const huge_pages&) = delete;

 private:
  static constexpr const char* limit = "/proc/sys/vm/nr_overcommit_hugepages";
  unsigned before_ = 0;
};

bool is_mapped(const std::string& name) {
  std::ifstream mappings{"/proc/self/maps"};
  for (std::string line; std::getline(mappings, line);)
    if (line.find(name) != line.npos) return true;
  return false;
}

}  // namespace

TEST_CASE("a region of a descriptor asks for what the kernel does", "[object]") {
  const paging_device soft0;
  const file memory{2 * page};
  const auto errno_of = [&](std::uint64_t offset, std::size_t length, std::uint64_t iova,
                            unsigned access = 0) {
    return dmabuf_errno(soft0, offset, length, iova, memory.fd, access);
  };
  CHECK(errno_of(0, 2 * page, 0) == 0);
  CHECK(errno_of(page + 5, page - 5, 7 * page + 5, IBV_ACCESS_LOCAL_WRITE) == 0);
  CHECK(errno_of(5, 8, 6) == EINVAL);  // The iova lies elsewhere in its page.
  CHECK(errno_of(0, 2 * page + 1, 0) == EINVAL);
  CHECK(errno_of(3 * page, 1, 0) == EINVAL);
  CHECK(errno_of(0, 0, 0) == EINVAL);
  CHECK(errno_of(page, SIZE_MAX, 0) == EINVAL);
  CHECK(errno_of(0, page, 0, IBV_ACCESS_MW_BIND) == EINVAL);
  CHECK(errno_of(0, page, 0, IBV_ACCESS_ON_DEMAND) == EINVAL);
  CHECK(errno_of(0, page, 0, IBV_ACCESS_REMOTE_WRITE) == EINVAL);
  CHECK(dmabuf_errno(soft0, 0, page, 0, -1, 0) == EBADF);
  int ends[2];
  REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
  CHECK(dmabuf_errno(soft0, 0, page, 0, ends[0], 0) == EINVAL);
  for (const int end : ends) ::close(end);
}

TEST_CASE("a region of a file of huge pages has them, and leaves none mapped", "[object]") {
  const huge_pages two{2};
  struct statfs system{};
  const file probe{0, MFD_HUGETLB};
  REQUIRE(::fstatfs(probe.fd, &system) == 0);
  const auto huge = static_cast<std::size_t>(system.f_bsize);
  const file memory{2 * huge, MFD_HUGETLB};
  void* const all = ::mmap(nullptr, 2 * huge, PROT_READ | PROT_WRITE, MAP_SHARED, memory.fd, 0);
  const paging_device soft0;
  if (all == MAP_FAILED) {  // The host has no huge pages to give.
    CHECK(dmabuf_errno(soft0, 0, huge, 0, memory.fd, 0) == ENOMEM);
    return;
  }
  auto* const bytes = static_cast<unsigned char*>(all);
  bytes[huge + page + 5] = 77;
  ibv_mr* const mr =
      verb::reg_dmabuf_mr(soft0.pd, huge + page + 5, 8, 5, memory.fd, IBV_ACCESS_LOCAL_WRITE);
  REQUIRE(mr != nullptr);
  {
    pinned byte;
    key_table& keys = softverbs::soft(soft0.ctx).local_node->keys();
    REQUIRE(keys.pin(mr->lkey, soft0.pd, 0, 0, 5, 8, byte) == key_error::none);
    CHECK(*byte.address() == std::byte{77});
  }
  CHECK(verb::dereg_mr(mr) == 0);
  CHECK(::munmap(all, 2 * huge) == 0);
  CHECK_FALSE(is_mapped("softverbs test"));
}

TEST_CASE("a region of a descriptor is not registered anew", "[object]") {
  const paging_device soft0;
  const file memory{page};
  ibv_mr* const mr = verb::reg_dmabuf_mr(soft0.pd, 0, page, 0, memory.fd, 0);
  REQUIRE(mr != nullptr);
  CHECK(mr->length == page);
  CHECK(verb::rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0,
                       IBV_ACCESS_LOCAL_WRITE) == IBV_REREG_MR_ERR_INPUT);
  CHECK(errno == EINVAL);
  CHECK(verb::dereg_mr(mr) == 0);
}

TEST_CASE("advice to prefetch brings the pages of a region on demand", "[object]") {
  const paging_device soft0;
  auto* const pages = static_cast<std::byte*>(
      ::mmap(nullptr, 4 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  const unsigned access = IBV_ACCESS_ON_DEMAND | IBV_ACCESS_LOCAL_WRITE;
  ibv_mr* const mr =
      verb::reg_mr(soft0.pd, pages, 4 * page, reinterpret_cast<std::uintptr_t>(pages), access);
  REQUIRE(mr != nullptr);
  CHECK(resident(pages, 4) == 0);
  ibv_sge range{reinterpret_cast<std::uintptr_t>(pages) + page + 8,
                static_cast<std::uint32_t>(page), mr->lkey};
  const auto advise = [&](ibv_advise_mr_advice advice, std::uint32_t flags) {
    return verb::advise_mr(soft0.pd, advice, flags, &range, 1);
  };
  CHECK(advise(IBV_ADVISE_MR_ADVICE_PREFETCH, 0) == 0);
  CHECK(advise(IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT, IBV_ADVISE_MR_FLAG_FLUSH) == 0);
  CHECK(resident(pages, 4) == 0);
  CHECK(advise(IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, IBV_ADVISE_MR_FLAG_FLUSH) == 0);
  CHECK(resident(pages, 4) == 2);
  ::mprotect(pages, 4 * page, PROT_READ);
  CHECK(advise(IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, IBV_ADVISE_MR_FLAG_FLUSH) == EFAULT);
  ::munmap(pages, 4 * page);
  CHECK(advise(IBV_ADVISE_MR_ADVICE_PREFETCH, IBV_ADVISE_MR_FLAG_FLUSH) == EFAULT);
  range.addr += 4 * page;
  CHECK(advise(IBV_ADVISE_MR_ADVICE_PREFETCH, IBV_ADVISE_MR_FLAG_FLUSH) == EFAULT);
  CHECK(verb::dereg_mr(mr) == 0);
}

TEST_CASE("advice that does not fit is refused", "[object]") {
  const paging_device soft0;
  std::array<std::byte, 64> bytes{};
  const auto base = reinterpret_cast<std::uintptr_t>(bytes.data());
  ibv_mr* const fixed = verb::reg_mr(soft0.pd, bytes.data(), bytes.size(), base, 0);
  ibv_mr* const paged =
      verb::reg_mr(soft0.pd, bytes.data(), bytes.size(), base, IBV_ACCESS_ON_DEMAND);
  ibv_pd* const other = verb::alloc_pd(soft0.ctx);
  const auto advise = [&](ibv_pd* pd, const ibv_mr* mr, ibv_advise_mr_advice advice,
                          std::uint32_t flags = 0, std::uint32_t count = 1) {
    ibv_sge range{base, 64, mr->lkey};
    return verb::advise_mr(pd, advice, flags, &range, count);
  };
  constexpr auto prefetch = IBV_ADVISE_MR_ADVICE_PREFETCH;
  CHECK(advise(soft0.pd, paged, prefetch) == 0);
  CHECK(advise(soft0.pd, paged, static_cast<ibv_advise_mr_advice>(3)) == EOPNOTSUPP);
  CHECK(advise(soft0.pd, paged, prefetch, 2) == EINVAL);
  CHECK(advise(soft0.pd, paged, prefetch, 0, 0) == EINVAL);
  CHECK(advise(soft0.pd, paged, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE) == EPERM);
  CHECK(advise(other, paged, prefetch) == EPERM);
  CHECK(advise(soft0.pd, fixed, prefetch) == ENOENT);
  CHECK(verb::dereg_mr(paged) == 0);
  ibv_mr gone = *fixed;
  gone.lkey ^= 1;
  CHECK(advise(soft0.pd, &gone, prefetch) == ENOENT);
  CHECK(verb::dereg_mr(fixed) == 0);
  CHECK(verb::dealloc_pd(other) == 0);
}

}  // namespace softverbs
