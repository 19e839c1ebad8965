#pragma once

#include <cordma/detail/base/export.hpp>
#include <cordma/verbs/access.hpp>
#include <cordma/verbs/protection_domain.hpp>

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <memory>

namespace cordma::verbs {

/// Owns one `ibv_mr`, not the memory, which must stay mapped until the region is destroyed. All
/// work requests that name the region must have completed by then. Move-only. \thread any.
class CORDMA_EXPORT memory_region {
 public:
  /// Registers (pins) `length` bytes at `address`.
  /// \errors  ENOMEM, EPERM: RLIMIT_MEMLOCK is too low (the detail gives it). EINVAL: remote write
  ///   or atomic without local_write. EFAULT: not mapped so. errc::limit_exceeded: longer than
  ///   mr_size_max_bytes. errc::not_supported: the device has no paging on demand; a flag that is
  ///   none of `access`.
  /// \cost  a system call that touches every page: about 50 us for 1 MiB. Never per operation.
  memory_region(protection_domain& pd, void* address, std::size_t length, access flags);
  /// Registers `length` bytes of a dma-buf from `offset` on (ibv_reg_dmabuf_mr(3)). Requests name
  /// them from `address` on, which is no further into its page than `offset` is. `mw_bind` and the
  /// flags about pages are left out. `fd` may be closed then.
  /// \errors  EBADF. EINVAL: `fd` is no dma-buf, or shorter. errc::not_supported: the device
  ///   registers none.
  memory_region(protection_domain& pd, int fd, std::uint64_t offset, std::size_t length,
                void* address, access flags);

  [[nodiscard]] ibv_mr* native_handle() const noexcept { return mr_.get(); }
  [[nodiscard]] std::byte* address() const noexcept { return address_; }
  [[nodiscard]] std::size_t length() const noexcept { return mr_->length; }
  [[nodiscard]] std::uint32_t lkey() const noexcept { return mr_->lkey; }
  [[nodiscard]] std::uint32_t rkey() const noexcept { return mr_->rkey; }
  [[nodiscard]] access flags() const noexcept { return flags_; }

  /// Ends the registration. Returns 0, or the errno of ibv_dereg_mr and then changes nothing: EBUSY
  /// or EINVAL while a memory window is bound to it. The destructor, in contrast, treats a refusal
  /// as a bug.
  [[nodiscard]] int deregister() noexcept;

 private:
  struct deregisterer {
    void operator()(ibv_mr* mr) const noexcept;
  };

  std::unique_ptr<ibv_mr, deregisterer> mr_;
  std::byte* address_;
  access flags_;
};

/// Owns one memory window (ibv_alloc_mw(3)): a range of a registration that peers may reach by a
/// separate key. Access begins when a bind request completes, and ends with this object.
/// Through a type-2 window only the peer of that queue pair has access. A local invalidate, or an
/// invalidate by the peer's SEND, ends it as well. Through a type-1 window the peers of all queue
/// pairs of the domain have access, until the next bind. Move-only.
/// \thread any, one at a time.
class CORDMA_EXPORT memory_window {
 public:
  /// \errors  errc::not_supported: the device has no windows of that type. ENOMEM: it has none left
  ///   (`device_limits::mw_max`). \cost one system call; windows are used again and again.
  explicit memory_window(protection_domain& pd, ibv_mw_type type = IBV_MW_TYPE_2);

  [[nodiscard]] ibv_mw* native_handle() const noexcept { return mw_.get(); }
  [[nodiscard]] ibv_mw_type type() const noexcept { return mw_->type; }
  /// Returns the key of the last bind reported by `bound`; of type 1, of the last one posted.
  [[nodiscard]] std::uint32_t rkey() const noexcept { return mw_->rkey; }
  /// Returns a key for the next bind, which must differ from the one before. Keys recur after 256
  /// binds.
  [[nodiscard]] std::uint32_t next_rkey() const noexcept { return ibv_inc_rkey(mw_->rkey); }
  /// Reports that a bind to this key has completed, or will before the next one; providers then use
  /// the key. A type-1 window needs it after a bind that failed, with the key of before.
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
