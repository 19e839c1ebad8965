#include "object/protection_domain.hpp"

#include "object/context.hpp"
#include "object/counted.hpp"
#include "object/soft_verbs.hpp"

#include <cerrno>
#include <memory>

namespace softverbs {
namespace {

/// IBV_PARENT_DOMAIN_INIT_ATTR_ALLOW_CC_UNPROTECTED_ALLOC of later headers: soft0 has no use for
/// it.
constexpr std::uint32_t allows_unprotected = 1 << 2;

thread_domain& behind(ibv_td* td) noexcept { return *reinterpret_cast<thread_domain*>(td); }

std::unique_ptr<domain_memory> memory_wanted(const ibv_parent_domain_init_attr& attr, ibv_pd* pd) {
  if ((attr.comp_mask & IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS) == 0) return nullptr;
  const bool has_context = (attr.comp_mask & IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT) != 0;
  return std::make_unique<domain_memory>(
      domain_memory{pd, has_context ? attr.pd_context : nullptr, attr.alloc, attr.free});
}

}  // namespace

namespace verb {

ibv_pd* alloc_pd(ibv_context* ctx) {
  auto pd = std::make_unique<protection_domain>();
  if (!counts_of(ctx).domains.add(limits().max_pd)) return fail(ENOMEM);
  pd->handle.context = ctx;
  return &pd.release()->handle;
}

int dealloc_pd(ibv_pd* handle) {
  protection_domain& pd = softverbs::soft(handle);
  if (pd.users.load() != 0) return EBUSY;
  if (pd.of != nullptr) softverbs::soft(pd.of).users.fetch_sub(1);
  if (pd.thread != nullptr) pd.thread->users.fetch_sub(1);
  object_counts& counts = counts_of(handle->context);
  delete &pd;
  counts.domains.remove();
  return 0;
}

ibv_td* alloc_td(ibv_context* ctx, ibv_td_init_attr* attr) {
  if (attr->comp_mask != 0) return fail(EINVAL);
  auto td = std::make_unique<thread_domain>();
  td->handle.context = ctx;
  return &td.release()->handle;
}

int dealloc_td(ibv_td* td) {
  if (behind(td).users.load() != 0) return EBUSY;
  delete &behind(td);
  return 0;
}

ibv_pd* alloc_parent_domain(ibv_context* ctx, ibv_parent_domain_init_attr* attr) {
  constexpr std::uint32_t known = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS |
                                  IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT | allows_unprotected;
  const bool has_memory = (attr->comp_mask & IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS) != 0;
  if ((attr->comp_mask & ~known) != 0 || attr->pd == nullptr || attr->pd->context != ctx ||
      (attr->td != nullptr && attr->td->context != ctx) ||
      (has_memory && (attr->alloc == nullptr || attr->free == nullptr)))
    return fail(EINVAL);
  auto pd = std::make_unique<protection_domain>();
  pd->memory = memory_wanted(*attr, &pd->handle);
  if (!counts_of(ctx).domains.add(limits().max_pd)) return fail(ENOMEM);
  pd->handle.context = ctx;
  pd->of = attr->pd;
  pd->origin = origin_of(attr->pd);
  softverbs::soft(attr->pd).users.fetch_add(1);
  if (attr->td != nullptr) {
    pd->thread = &behind(attr->td);
    pd->thread->users.fetch_add(1);
  }
  return &pd.release()->handle;
}

}  // namespace verb
}  // namespace softverbs
