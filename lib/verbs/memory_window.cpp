#include <cordma/verbs/memory_window.hpp>

#include "failures.hpp"

#include <cordma/detail/base/assert.hpp>

#include <cerrno>

namespace cordma::verbs {

void memory_window::deallocator::operator()(ibv_mw* mw) const noexcept {
  const int rc = ibv_dealloc_mw(mw);  // Another errno: the device is gone, which is nobody's bug.
  CORDMA_ASSERT(rc != EBUSY && rc != EINVAL, "memory window ended twice, or in use");
}

memory_window::memory_window(protection_domain& pd) {
  if (!pd.limits().memory_window_type_2) {
    detail::throw_failure(errc::not_supported, "ibv_alloc_mw",
                          "the device has no memory windows of type 2");
  }
  mw_.reset(ibv_alloc_mw(pd.native_handle(), IBV_MW_TYPE_2));
  if (mw_ == nullptr) {
    detail::throw_errno(
        errno, "ibv_alloc_mw",
        detail::detail_text("the device has %u memory windows in all", pd.limits().mw_max));
  }
}

int memory_window::deallocate() noexcept {
  ibv_mw* const mw = mw_.release();
  const int rc = ibv_dealloc_mw(mw);
  if (rc != 0) mw_.reset(mw);
  return rc;
}

}  // namespace cordma::verbs
