#include "memory/key_table.hpp"
#include "node/node.hpp"
#include "object/context.hpp"
#include "object/counted.hpp"
#include "object/protection_domain.hpp"
#include "object/soft_verbs.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <memory>
#include <string>

namespace softverbs {
namespace {

object_count domains;
object_count regions;

constexpr unsigned served_access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                                   IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC |
                                   IBV_ACCESS_MW_BIND | IBV_ACCESS_ZERO_BASED | IBV_ACCESS_HUGETLB;

/// ibv_reg_mr(3): who may write remotely may write locally; optional flags may be ignored.
int check_access(unsigned access) noexcept {
  const unsigned wanted = access & ~unsigned{IBV_ACCESS_OPTIONAL_RANGE};
  if ((wanted & ~served_access) != 0) return EOPNOTSUPP;
  const bool remote_change = (wanted & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)) != 0;
  return remote_change && (wanted & IBV_ACCESS_LOCAL_WRITE) == 0 ? EINVAL : 0;
}

/// Whether all of it is mapped at this moment: mincore(2) says ENOMEM for a hole. What is unmapped
/// later is found by the copy that meets it.
bool is_mapped(void* address, std::size_t length) {
  const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  constexpr std::size_t pages_at_once = 4096;
  unsigned char residency[pages_at_once];
  const auto begin = reinterpret_cast<std::uintptr_t>(address) & ~(page - 1);
  const auto end = reinterpret_cast<std::uintptr_t>(address) + length;
  for (auto at = begin; at < end; at += pages_at_once * page) {
    const std::size_t bytes = std::min<std::size_t>(end - at, pages_at_once * page);
    if (::mincore(reinterpret_cast<void*>(at), bytes, residency) != 0) return false;
  }
  return true;
}

int check_range(void* address, std::size_t length) {
  if (length > limits().max_mr_size) return EINVAL;
  if (reinterpret_cast<std::uintptr_t>(address) + length < length) return EINVAL;
  return length == 0 || is_mapped(address, length) ? 0 : EFAULT;
}

key_grant grant_for(const void* pd, void* address, std::size_t length, std::uint64_t iova,
                    unsigned access) {
  key_grant grant;
  grant.pd = pd;
  grant.access = access & ~unsigned{IBV_ACCESS_OPTIONAL_RANGE};
  grant.iova = (access & IBV_ACCESS_ZERO_BASED) != 0 ? 0 : iova;
  grant.base = static_cast<std::byte*>(address);
  grant.length = length;
  return grant;
}

template <class Object>
Object* fail(int error) {
  errno = error;
  return nullptr;
}

}  // namespace

namespace verb {

ibv_pd* alloc_pd(ibv_context* ctx) {
  if (!domains.add(limits().max_pd)) return fail<ibv_pd>(ENOMEM);
  auto* pd = new (std::nothrow) protection_domain;
  if (pd == nullptr) {
    domains.remove();
    return fail<ibv_pd>(ENOMEM);
  }
  pd->handle.context = ctx;
  return &pd->handle;
}

int dealloc_pd(ibv_pd* pd) {
  if (softverbs::soft(pd).users.load() != 0) return EBUSY;
  delete &softverbs::soft(pd);
  domains.remove();
  return 0;
}

ibv_mr* reg_mr(ibv_pd* pd, void* address, std::size_t length, std::uint64_t iova, unsigned access) {
  if (const int error = check_access(access)) return fail<ibv_mr>(error);
  if (const int error = check_range(address, length)) return fail<ibv_mr>(error);
  auto mr = std::make_unique<ibv_mr>();
  if (!regions.add(limits().max_mr)) return fail<ibv_mr>(ENOMEM);
  key_table& keys = soft(pd->context).home->keys();
  const std::uint32_t key = keys.allocate();
  if (key == 0) {
    regions.remove();
    return fail<ibv_mr>(ENOMEM);
  }
  keys.grant(key, grant_for(pd, address, length, iova, access));
  softverbs::soft(pd).users.fetch_add(1);
  *mr = {.context = pd->context,
         .pd = pd,
         .addr = address,
         .length = length,
         .handle = key >> variant_bits,
         .lkey = key,
         .rkey = key};
  return mr.release();
}

int rereg_mr(ibv_mr* mr, int flags, ibv_pd* pd, void* address, std::size_t length, int access) {
  key_table& keys = soft(mr->context).home->keys();
  key_slot* slot = keys.slot_of(mr->lkey);
  const bool moves = (flags & IBV_REREG_MR_CHANGE_TRANSLATION) != 0;
  const bool changes_pd = (flags & IBV_REREG_MR_CHANGE_PD) != 0;
  key_grant grant = slot->grant;
  if ((flags & IBV_REREG_MR_CHANGE_ACCESS) != 0) {
    if (const int error = check_access(static_cast<unsigned>(access))) return error;
    grant.access = static_cast<unsigned>(access) & ~unsigned{IBV_ACCESS_OPTIONAL_RANGE};
  }
  if (moves) {
    if (const int error = check_range(address, length)) return error;
    grant = grant_for(grant.pd, address, length, reinterpret_cast<std::uintptr_t>(address),
                      grant.access);
  }
  if (changes_pd) grant.pd = pd;
  if (slot->windows.load() != 0) return EBUSY;
  keys.revoke(mr->lkey);
  keys.grant(mr->lkey, grant);
  if (moves) {
    mr->addr = address;
    mr->length = length;
  }
  if (changes_pd) {
    softverbs::soft(mr->pd).users.fetch_sub(1);
    softverbs::soft(pd).users.fetch_add(1);
    mr->pd = pd;
  }
  return 0;
}

int dereg_mr(ibv_mr* mr) {
  key_table& keys = soft(mr->context).home->keys();
  key_slot* slot = keys.slot_of(mr->lkey);
  const key_grant grant = slot->grant;
  keys.revoke(mr->lkey);
  if (slot->windows.load() != 0) {  // See key_slot::windows: who binds one now finds the key dead.
    keys.grant(mr->lkey, grant);
    return EBUSY;
  }
  keys.free(mr->lkey);
  softverbs::soft(mr->pd).users.fetch_sub(1);
  regions.remove();
  delete mr;
  return 0;
}

}  // namespace verb
}  // namespace softverbs
