#include "memory/key_table.hpp"
#include "node/node.hpp"
#include "object/context.hpp"
#include "object/counted.hpp"
#include "object/protection_domain.hpp"
#include "object/soft_verbs.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <memory>

namespace softverbs {
namespace {

object_count domains;
object_count regions;

struct memory_region {
  ibv_mr handle;  // First: pointers to it are cast back.
  key_grant grant;
};

memory_region& behind(ibv_mr* mr) noexcept { return *reinterpret_cast<memory_region*>(mr); }

/// The accepted access flags. Flags that promise something about pages are accepted and ignored.
constexpr unsigned known_access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                                  IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC |
                                  IBV_ACCESS_MW_BIND | IBV_ACCESS_ZERO_BASED | IBV_ACCESS_HUGETLB;

int check_access(unsigned access) noexcept {
  const unsigned required = access & ~unsigned{IBV_ACCESS_OPTIONAL_RANGE};
  if ((required & IBV_ACCESS_ON_DEMAND) != 0) return EOPNOTSUPP;
  if ((required & ~known_access) != 0) return EINVAL;
  constexpr unsigned by_others = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
  if ((required & by_others) != 0 && (required & IBV_ACCESS_LOCAL_WRITE) == 0) return EINVAL;
  if ((required & IBV_ACCESS_REMOTE_ATOMIC) != 0 && limits().atomic_cap == IBV_ATOMIC_NONE)
    return EOPNOTSUPP;
  if ((required & IBV_ACCESS_MW_BIND) != 0 && limits().max_mw == 0) return EOPNOTSUPP;
  return 0;
}

// Initialized while the library is loaded: a fork during a later initialization could leave the
// guard of a static locked in the child.

/// True if the kernel can check the access to pages (since 5.14).
const bool can_ask = [] {
  void* own = ::mmap(nullptr, 1, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (own == MAP_FAILED) return false;
  const bool known = ::madvise(own, 1, MADV_POPULATE_READ) == 0;
  ::munmap(own, 1);
  return known;
}();
const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));

/// True if the page of `at` allows the access `advice`.
bool can_have(std::uintptr_t at, int advice) noexcept {
  return ::madvise(reinterpret_cast<void*>(at - at % page), page, advice) == 0;
}

/// EFAULT for unmapped memory, as from hardware, which pins memory. One system call checks that the
/// whole range is mapped; the protection is checked in the first and the last page. A fault that
/// this check misses becomes an error completion later. Within one page, one check is enough.
int check_memory(std::byte* base, std::uint64_t length, unsigned access) noexcept {
  const auto first = reinterpret_cast<std::uintptr_t>(base);
  const auto last = first + length - 1;
  const bool is_within_one = first / page == last / page && can_ask;
  // MS_ASYNC has no effect, except that it fails with ENOMEM for unmapped pages.
  if (!is_within_one && ::msync(base - first % page, length + first % page, MS_ASYNC) != 0)
    return EFAULT;
  if (!can_ask) return 0;
  const int use = (access & IBV_ACCESS_LOCAL_WRITE) != 0 ? MADV_POPULATE_WRITE : MADV_POPULATE_READ;
  if (!can_have(first, use)) return EFAULT;
  return is_within_one || can_have(last, use) ? 0 : EFAULT;
}

int check_grant(const key_grant& grant) noexcept {
  if (const int error = check_access(grant.access)) return error;
  const auto base = reinterpret_cast<std::uintptr_t>(grant.base);
  if (grant.length > limits().max_mr_size) return EINVAL;
  if (base + grant.length < base || grant.iova + grant.length < grant.iova) return EINVAL;
  return grant.length == 0 ? 0 : check_memory(grant.base, grant.length, grant.access);
}

std::uint64_t iova_of(unsigned access, std::uint64_t wished) noexcept {
  return (access & IBV_ACCESS_ZERO_BASED) != 0 ? 0 : wished;
}

}  // namespace

namespace verb {

ibv_pd* alloc_pd(ibv_context* ctx) {
  auto pd = std::make_unique<protection_domain>();
  if (!domains.add(limits().max_pd)) return fail(ENOMEM);
  pd->handle.context = ctx;
  return &pd.release()->handle;
}

int dealloc_pd(ibv_pd* pd) {
  if (softverbs::soft(pd).users.load() != 0) return EBUSY;
  delete &softverbs::soft(pd);
  domains.remove();
  return 0;
}

ibv_mr* reg_mr(ibv_pd* pd, void* address, std::size_t length, std::uint64_t iova, unsigned access) {
  const key_grant grant{.pd = pd,
                        .access = access,
                        .iova = iova_of(access, iova),
                        .base = static_cast<std::byte*>(address),
                        .length = length};
  if (const int error = check_grant(grant)) return fail(error);
  auto mr = std::make_unique<memory_region>();
  if (!regions.add(limits().max_mr)) return fail(ENOMEM);
  key_table& keys = softverbs::soft(pd->context).local_node->keys();
  const std::uint32_t key = keys.allocate();
  if (key == 0) {
    regions.remove();
    return fail(ENOMEM);
  }
  mr->grant = grant;
  mr->handle = {.context = pd->context,
                .pd = pd,
                .addr = address,
                .length = length,
                .handle = key >> variant_bits,
                .lkey = key,
                .rkey = key};
  softverbs::soft(pd).users.fetch_add(1);
  keys.grant(key, grant);
  return &mr.release()->handle;
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
      (moves && (address == nullptr || length == 0)) || (access != 0 && !changes_access))
    return refuse(EINVAL, IBV_REREG_MR_ERR_INPUT);
  if (flags == 0) return refuse(EINVAL);
  if (changes_pd && (pd == nullptr || pd->context != mr->context)) return refuse(EINVAL);

  key_grant grant = behind(mr).grant;
  if (changes_access) grant.access = static_cast<unsigned>(access);
  if (changes_pd) grant.pd = pd;
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
  delete &behind(mr);
  regions.remove();
  return 0;
}

}  // namespace verb
}  // namespace softverbs
