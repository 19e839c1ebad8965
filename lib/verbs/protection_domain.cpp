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

void protection_domain::deallocator::operator()(ibv_td* td) const noexcept {
  const int rc = ibv_dealloc_td(td);
  CORDMA_ASSERT(rc != EBUSY, "thread domain destroyed before its parent domain");
}

protection_domain::protection_domain(context& ctx, bool wants_thread_domain)
    : pd_{ibv_alloc_pd(ctx.native_handle())}, limits_{ctx.limits()} {
  if (pd_ == nullptr) {
    detail::throw_errno(errno, "ibv_alloc_pd",
                        detail::detail_text("%s has room for %u protection domains",
                                            ctx.info().name.c_str(), limits_.pd_max));
  }
  if (wants_thread_domain) make_thread_domain(ctx);
}

void protection_domain::make_thread_domain(context& ctx) {
  const char* call = "ibv_alloc_td";
  ibv_td_init_attr of_thread{};
  td_.reset(ibv_alloc_td(ctx.native_handle(), &of_thread));
  if (td_ != nullptr) {
    call = "ibv_alloc_parent_domain";
    ibv_parent_domain_init_attr of_both{};
    of_both.pd = pd_.get();
    of_both.td = td_.get();
    parent_.reset(ibv_alloc_parent_domain(ctx.native_handle(), &of_both));
  }
  if (parent_ != nullptr) {
    queues_ = queue_domain::thread_domain;
    return;
  }
  const int error = errno;
  td_.reset();
  queues_ = queue_domain::no_thread_domain;
  if (error != EOPNOTSUPP && error != ENOSYS) detail::throw_errno(error, call, ctx.name());
}

}  // namespace cordma::verbs
