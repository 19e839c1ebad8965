#include "memory/key_table.hpp"
#include "node/node.hpp"
#include "object/context.hpp"
#include "object/counted.hpp"
#include "object/pages.hpp"
#include "object/protection_domain.hpp"
#include "object/soft_verbs.hpp"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

namespace softverbs {
namespace {

/// Memory of a descriptor that this library mapped.
struct mapping {
  mapping() = default;
  mapping(std::byte* mapped, std::size_t mapped_bytes) noexcept : at{mapped}, bytes{mapped_bytes} {}
  mapping(mapping&& other) noexcept : at{std::exchange(other.at, nullptr)}, bytes{other.bytes} {}
  mapping& operator=(mapping&& other) noexcept {
    std::swap(at, other.at);
    std::swap(bytes, other.bytes);
    return *this;
  }
  ~mapping() {
    if (at != nullptr) ::munmap(at, bytes);
  }
  std::byte* at = nullptr;
  std::size_t bytes = 0;
};

struct memory_region {
  ibv_mr handle;  // First: pointers to it are cast back.
  key_grant grant;
  mapping mapped;  ///< the mapping of a dma-buf
};

memory_region& behind(ibv_mr* mr) noexcept { return *reinterpret_cast<memory_region*>(mr); }

/// The accepted access flags. Flags that promise something about pages are accepted and ignored.
constexpr unsigned known_access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                                  IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC |
                                  IBV_ACCESS_MW_BIND | IBV_ACCESS_ZERO_BASED |
                                  IBV_ACCESS_ON_DEMAND | IBV_ACCESS_HUGETLB;

int check_access(unsigned access) noexcept {
  const unsigned required = access & ~unsigned{IBV_ACCESS_OPTIONAL_RANGE};
  if ((required & ~known_access) != 0) return EINVAL;
  constexpr unsigned by_others = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
  if ((required & by_others) != 0 && (required & IBV_ACCESS_LOCAL_WRITE) == 0) return EINVAL;
  if ((required & IBV_ACCESS_REMOTE_ATOMIC) != 0 && limits().atomic_cap == IBV_ATOMIC_NONE)
    return EOPNOTSUPP;
  if ((required & IBV_ACCESS_MW_BIND) != 0 && limits().max_mw == 0) return EOPNOTSUPP;
  return 0;
}

/// Initialized while the library is loaded: a fork during a later initialization could leave the
/// guard of a static locked in the child.

/// EFAULT for unmapped memory, as from hardware, which pins memory. One system call checks that the
/// whole range is mapped; the protection is checked in the first and the last page. A fault that
/// this check misses becomes an error completion later. Within one page, one check is enough.
int check_memory(std::byte* base, std::uint64_t length, unsigned access) noexcept {
  const auto first = reinterpret_cast<std::uintptr_t>(base);
  const auto last = first + length - 1;
  const bool is_within_one = first / page_bytes == last / page_bytes && can_populate();
  // MS_ASYNC has no effect, except that it fails with ENOMEM for unmapped pages.
  if (!is_within_one &&
      ::msync(base - first % page_bytes, length + first % page_bytes, MS_ASYNC) != 0)
    return EFAULT;
  if (!can_populate()) return 0;
  const bool writes = (access & IBV_ACCESS_LOCAL_WRITE) != 0;
  if (!populate(base, 1, writes)) return EFAULT;
  return is_within_one || populate(base + length - 1, 1, writes) ? 0 : EFAULT;
}

/// True for all memory of the process (ibv_reg_mr(3)): null, SIZE_MAX, and paging on demand.
bool is_implicit(const key_grant& grant) noexcept {
  return grant.base == nullptr && grant.length == SIZE_MAX &&
         (grant.access & IBV_ACCESS_ON_DEMAND) != 0;
}

int check_grant(const key_grant& grant) noexcept {
  if (const int error = check_access(grant.access)) return error;
  const auto base = reinterpret_cast<std::uintptr_t>(grant.base);
  if (is_implicit(grant)) return grant.iova == 0 ? 0 : EINVAL;
  if (grant.length > limits().max_mr_size) return EINVAL;
  if (base + grant.length < base || grant.iova + grant.length < grant.iova) return EINVAL;
  // Pages on demand need not be there yet: a copy that finds none ends with an error.
  const bool now = grant.length != 0 && (grant.access & IBV_ACCESS_ON_DEMAND) == 0;
  return now ? check_memory(grant.base, grant.length, grant.access) : 0;
}

std::uint64_t iova_of(unsigned access, std::uint64_t wished) noexcept {
  return (access & IBV_ACCESS_ZERO_BASED) != 0 ? 0 : wished;
}

/// Makes a region of a grant that was checked. `address`: as the program knows it.
ibv_mr* make_region(ibv_pd* pd, void* address, const key_grant& grant, mapping mapped) {
  auto mr = std::make_unique<memory_region>();
  object_count& regions = counts_of(pd->context).regions;
  if (!regions.add(limits().max_mr)) return fail(ENOMEM);
  key_table& keys = softverbs::soft(pd->context).local_node->keys();
  const std::uint32_t key = keys.allocate();
  if (key == 0) {
    regions.remove();
    return fail(ENOMEM);
  }
  mr->grant = grant;
  mr->mapped = std::move(mapped);
  mr->handle = {.context = pd->context,
                .pd = pd,
                .addr = address,
                .length = grant.length,
                .handle = key >> variant_bits,
                .lkey = key,
                .rkey = key};
  softverbs::soft(pd).users.fetch_add(1);
  keys.grant(key, grant);
  return &mr.release()->handle;
}

/// The size of what a descriptor stands for. 0: not known.
std::uint64_t size_of(int fd) noexcept {
  struct stat file{};
  if (::fstat(fd, &file) == 0 && S_ISREG(file.st_mode))
    return static_cast<std::uint64_t>(file.st_size);
  // A dma-buf tells its size so, and its position has no other use.
  const off_t end = ::lseek(fd, 0, SEEK_END);
  if (end < 0) return 0;
  ::lseek(fd, 0, SEEK_SET);
  return static_cast<std::uint64_t>(end);
}

/// The size of the pages that a descriptor is mapped by.
std::size_t page_bytes_of(int fd) noexcept {
  struct statfs system{};
  const bool has_huge_pages = ::fstatfs(fd, &system) == 0 && system.f_type == HUGETLBFS_MAGIC;
  return has_huge_pages ? static_cast<std::size_t>(system.f_bsize) : page_bytes;
}

/// Maps the pages around a range, whose first byte is at `offset % page` of the mapping. munmap(2)
/// takes whole huge pages only. On failure errno: as a kernel that finds no dma-buf.
mapping map(int fd, std::uint64_t offset, std::size_t length, std::size_t page,
            unsigned access) noexcept {
  const int protection =
      (access & IBV_ACCESS_LOCAL_WRITE) != 0 ? PROT_READ | PROT_WRITE : PROT_READ;
  const std::size_t bytes = (offset % page + length + page - 1) / page * page;
  void* const at = ::mmap(nullptr, bytes, protection, MAP_SHARED, fd,
                          static_cast<off_t>(offset - offset % page));
  if (at != MAP_FAILED) return {static_cast<std::byte*>(at), bytes};
  if (errno != EBADF && errno != ENOMEM) errno = EINVAL;
  return {};
}

}  // namespace

namespace verb {

ibv_mr* reg_mr(ibv_pd* pd, void* address, std::size_t length, std::uint64_t iova, unsigned access) {
  const key_grant grant{.pd = origin_of(pd),
                        .access = access,
                        .iova = iova_of(access, iova),
                        .base = static_cast<std::byte*>(address),
                        .length = length};
  if (const int error = check_grant(grant)) return fail(error);
  return make_region(pd, address, grant, {});
}

/// The memory of a descriptor, mapped here: of a dma-buf that can be mapped, a memfd, a file.
ibv_mr* reg_dmabuf_mr(ibv_pd* pd, std::uint64_t offset, std::size_t length, std::uint64_t iova,
                      int fd, unsigned access) {
  // The flags that the kernel knows here (uverbs_std_types_mr.c).
  constexpr unsigned known = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                             IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC |
                             IBV_ACCESS_RELAXED_ORDERING;
  if ((access & ~known) != 0 || offset % page_bytes != iova % page_bytes) return fail(EINVAL);
  if (const int error = check_access(access)) return fail(error);
  if (::fcntl(fd, F_GETFD) < 0) return fail(EBADF);
  const std::uint64_t size = size_of(fd);
  if (length == 0 || offset > size || length > size - offset || iova + length < iova)
    return fail(EINVAL);
  const std::size_t page = page_bytes_of(fd);
  mapping mapped = map(fd, offset, length, page, access);
  if (mapped.at == nullptr) return fail(errno);
  const key_grant grant{.pd = origin_of(pd),
                        .access = access,
                        .iova = iova,
                        .base = mapped.at + offset % page,
                        .length = length};
  // NOLINTNEXTLINE(performance-no-int-to-ptr): libibverbs stores the offset there, too.
  return make_region(pd, reinterpret_cast<void*>(offset), grant, std::move(mapped));
}

/// Changes a region; the keys stay. All checks come first: after an error the old region is valid.
/// The codes are those of ibv_rereg_mr(3): libibverbs answers ERR_INPUT, a kernel ERR_CMD.
int rereg_mr(ibv_mr* mr, int flags, ibv_pd* pd, void* address, std::size_t length, int access) {
  const auto refuse = [](int error, ibv_rereg_mr_err_code code = IBV_REREG_MR_ERR_CMD) {
    errno = error;
    return static_cast<int>(code);
  };
  const bool moves = (flags & IBV_REREG_MR_CHANGE_TRANSLATION) != 0;
  const bool changes_pd = (flags & IBV_REREG_MR_CHANGE_PD) != 0;
  const bool changes_access = (flags & IBV_REREG_MR_CHANGE_ACCESS) != 0;
  if ((flags & ~IBV_REREG_MR_FLAGS_SUPPORTED) != 0 ||
      (moves && (address == nullptr || length == 0)) || (access != 0 && !changes_access) ||
      behind(mr).mapped.at != nullptr)
    return refuse(EINVAL, IBV_REREG_MR_ERR_INPUT);
  if (flags == 0) return refuse(EINVAL);
  if (changes_pd && (pd == nullptr || pd->context != mr->context)) return refuse(EINVAL);

  key_grant grant = behind(mr).grant;
  if (changes_access) grant.access = static_cast<unsigned>(access);
  if (changes_pd) grant.pd = origin_of(pd);
  if (moves) {
    grant.base = static_cast<std::byte*>(address);
    grant.length = length;
    grant.iova = reinterpret_cast<std::uintptr_t>(address);
  }
  grant.iova = iova_of(grant.access, grant.iova);
  if (const int error = check_grant(grant)) return refuse(error);

  key_table& keys = softverbs::soft(mr->context).local_node->keys();
  key_slot& slot = *keys.slot_of(mr->lkey);
  if (slot.windows.load() != 0) return refuse(EBUSY);
  keys.revoke(mr->lkey);
  if (slot.windows.load() != 0) {  // A window was bound meanwhile.
    keys.grant(mr->lkey, behind(mr).grant);
    return refuse(EBUSY);
  }
  behind(mr).grant = grant;
  keys.grant(mr->lkey, grant);
  if (changes_pd) {
    softverbs::soft(mr->pd).users.fetch_sub(1);
    softverbs::soft(pd).users.fetch_add(1);
    mr->pd = pd;
  }
  if (moves) {
    mr->addr = address;
    mr->length = length;
  }
  return 0;
}

int dereg_mr(ibv_mr* mr) {
  key_table& keys = softverbs::soft(mr->context).local_node->keys();
  const key_slot& slot = *keys.slot_of(mr->lkey);
  if (slot.windows.load() != 0) return EBUSY;
  keys.revoke(mr->lkey);
  if (slot.windows.load() != 0) {  // A window was bound meanwhile.
    keys.grant(mr->lkey, behind(mr).grant);
    return EBUSY;
  }
  keys.free(mr->lkey);
  softverbs::soft(mr->pd).users.fetch_sub(1);
  counts_of(mr->context).regions.remove();
  delete &behind(mr);
  return 0;
}

}  // namespace verb
}  // namespace softverbs
