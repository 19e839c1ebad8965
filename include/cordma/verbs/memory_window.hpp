#pragma once

#include <cordma/detail/base/export.hpp>
#include <cordma/verbs/protection_domain.hpp>

#include <infiniband/verbs.h>

#include <cstdint>
#include <memory>

namespace cordma::verbs {

/// Owns one type-2 memory window (ibv_alloc_mw(3)): a range of a registration that one queue pair's
/// peer may reach by a separate key. Access begins when a bind request on that queue pair
/// completes. A local invalidate, an invalidate by the peer's SEND, or this object's end ends it.
/// Move-only.
/// \thread any, one at a time.
class CORDMA_EXPORT memory_window {
 public:
  /// \errors  errc::not_supported: the device has no type-2 windows. ENOMEM: it has none left
  ///   (`device_limits::mw_max`). \cost one system call; windows are used again and again.
  explicit memory_window(protection_domain& pd);

  [[nodiscard]] ibv_mw* native_handle() const noexcept { return mw_.get(); }
  /// Returns the key of the last bind reported by `bound`.
  [[nodiscard]] std::uint32_t rkey() const noexcept { return mw_->rkey; }
  /// Returns a key for the next bind, which must differ from the one before. Keys recur after 256
  /// binds.
  [[nodiscard]] std::uint32_t next_rkey() const noexcept { return ibv_inc_rkey(mw_->rkey); }
  /// Reports that a bind to this key has completed, or will before the next one; providers then use
  /// the key.
  void bound(std::uint32_t rkey) noexcept { mw_->rkey = rkey; }

  /// Ends the window, bound or not: accesses through it stop at once. Returns 0, or the errno of
  /// ibv_dealloc_mw, and then a peer may still have access.
  [[nodiscard]] int deallocate() noexcept;

 private:
  struct deallocator {
    void operator()(ibv_mw* mw) const noexcept;
  };
  std::unique_ptr<ibv_mw, deallocator> mw_;
};

}  // namespace cordma::verbs
