#include "memory/key_table.hpp"
#include "node/node.hpp"
#include "object/context.hpp"
#include "object/pages.hpp"
#include "object/protection_domain.hpp"
#include "object/soft_verbs.hpp"

#include <cerrno>
#include <cstdint>
#include <span>

// ibv_advise_mr(3): pages of regions that are paged on demand come before they are used.

namespace softverbs {
namespace {

int error_of(key_error error) noexcept {
  switch (error) {
    case key_error::none: return 0;
    case key_error::wrong_pd:
    case key_error::no_access: return EPERM;
    case key_error::out_of_range: return EFAULT;
    default: return ENOENT;
  }
}

/// Checks one range; with `now`, brings its pages.
int prefetch(key_table& keys, const ibv_pd* pd, const ibv_sge& range, unsigned access, bool now) {
  pinned pin;
  if (const int error = error_of(
          keys.pin(range.lkey, origin_of(pd), 0, access, range.addr, now ? range.length : 0, pin)))
    return error;
  if ((keys.slot_of(range.lkey)->grant.access & IBV_ACCESS_ON_DEMAND) == 0) return ENOENT;
  std::byte* const at = pin.address();
  pin.release();  // The pages may take long; whoever unmaps them meanwhile harms nobody.
  if (!now || range.length == 0 || !can_populate()) return 0;
  return populate(at, range.length, access != 0) ? 0 : EFAULT;
}

}  // namespace

namespace verb {

int advise_mr(ibv_pd* pd, ibv_advise_mr_advice advice, std::uint32_t flags, ibv_sge* list,
              std::uint32_t count) {
  if (advice != IBV_ADVISE_MR_ADVICE_PREFETCH && advice != IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE &&
      advice != IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT)
    return EOPNOTSUPP;
  if ((flags & ~std::uint32_t{IBV_ADVISE_MR_FLAG_FLUSH}) != 0 || count == 0) return EINVAL;
  const unsigned access =
      advice == IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE ? unsigned{IBV_ACCESS_LOCAL_WRITE} : 0u;
  // Without FLUSH, the pages come when they are used. NO_FAULT asks only for pages that are in
  // memory, which a copy finds anyway.
  const bool now =
      (flags & IBV_ADVISE_MR_FLAG_FLUSH) != 0 && advice != IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT;
  key_table& keys = soft(pd->context).local_node->keys();
  for (const ibv_sge& range : std::span{list, count})
    if (const int error = prefetch(keys, pd, range, access, now)) return error;
  return 0;
}

}  // namespace verb
}  // namespace softverbs
