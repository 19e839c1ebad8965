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
  ///   or atomic without local_write. errc::limit_exceeded: longer than mr_size_max_bytes.
  /// \cost  a system call that touches every page: about 50 us for 1 MiB. Never per operation.
  memory_region(protection_domain& pd, void* address, std::size_t length, access flags);

  [[nodiscard]] ibv_mr* native_handle() const noexcept { return mr_.get(); }
  [[nodiscard]] std::byte* address() const noexcept { return static_cast<std::byte*>(mr_->addr); }
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
  access flags_;
};

}  // namespace cordma::verbs
