#pragma once

#include <cordma/detail/base/export.hpp>
#include <cordma/verbs/device.hpp>

#include <infiniband/verbs.h>

#include <memory>

namespace cordma::verbs {

/// Owns one `ibv_pd`: memory regions and queue pairs of the same domain may be used together.
/// Move-only; must outlive both. Its context must outlive it. \thread any.
class CORDMA_EXPORT protection_domain {
 public:
  /// \errors  ENOMEM: the device has no domain left (`device_limits::pd_max`).
  /// \cost  one system call.
  explicit protection_domain(context& ctx);

  [[nodiscard]] ibv_pd* native_handle() const noexcept { return pd_.get(); }
  /// Returns the device's limits, copied so that they survive a move of the context object.
  [[nodiscard]] const device_limits& limits() const noexcept { return limits_; }

 private:
  struct deallocator {
    void operator()(ibv_pd* pd) const noexcept;
  };

  std::unique_ptr<ibv_pd, deallocator> pd_;
  device_limits limits_;
};

}  // namespace cordma::verbs
