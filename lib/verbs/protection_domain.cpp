#include <cordma/verbs/protection_domain.hpp>

#include "failures.hpp"

#include <cordma/detail/base/assert.hpp>

#include <cerrno>

namespace cordma::verbs {

void protection_domain::deallocator::operator()(ibv_pd* pd) const noexcept {
  const int rc = ibv_dealloc_pd(pd);  // Another errno: the device is gone, which is nobody's bug.
  CORDMA_ASSERT(rc != EBUSY,
                "protection domain destroyed before its memory regions or queue pairs");
}

protection_domain::protection_domain(context& ctx)
    : pd_{ibv_alloc_pd(ctx.native_handle())}, limits_{ctx.limits()} {
  if (pd_ == nullptr) {
    detail::throw_errno(errno, "ibv_alloc_pd",
                        detail::detail_text("%s has room for %u protection domains",
                                            ctx.info().name.c_str(), limits_.pd_max));
  }
}

}  // namespace cordma::verbs
