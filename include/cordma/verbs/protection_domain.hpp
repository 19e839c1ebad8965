#pragma once

#include <cordma/detail/base/export.hpp>
#include <cordma/verbs/device.hpp>

#include <infiniband/verbs.h>

#include <cstdint>
#include <memory>
#include <utility>

namespace cordma::verbs {

/// Owns one `ibv_pd`: memory regions and queue pairs of the same domain may be used together.
/// Move-only; must outlive both. Its context must outlive it. \thread any.
///
/// With a thread domain (ibv_alloc_td(3)) its queues are made in a parent domain of the two. Only
/// one thread at a time uses them then, and the driver may leave their locks out. Memory regions
/// stay in the protection domain itself.
class CORDMA_EXPORT protection_domain {
 public:
  /// Where the queues of a domain are made.
  enum class queue_domain : std::uint8_t {
    itself,            ///< In the protection domain; no thread domain was asked for.
    thread_domain,     ///< In a parent domain with a thread domain.
    no_thread_domain,  ///< In the protection domain: the device has no thread domains.
  };

  /// \errors  ENOMEM: the device has no domain left (`device_limits::pd_max`).
  /// \cost  one system call.
  explicit protection_domain(context& ctx, bool wants_thread_domain = false);
  protection_domain(protection_domain&&) = default;
  protection_domain& operator=(protection_domain&& other) noexcept {
    // A parent domain goes before what it consists of.
    parent_ = std::move(other.parent_);
    td_ = std::move(other.td_);
    pd_ = std::move(other.pd_);
    queues_ = other.queues_;
    limits_ = other.limits_;
    return *this;
  }
  ~protection_domain() = default;

  [[nodiscard]] ibv_pd* native_handle() const noexcept { return pd_.get(); }
  /// Returns the domain in which queue pairs, completion queues and shared receive queues are made.
  [[nodiscard]] ibv_pd* queues_handle() const noexcept {
    return parent_ != nullptr ? parent_.get() : pd_.get();
  }
  [[nodiscard]] queue_domain queues() const noexcept { return queues_; }
  /// Returns the device's limits, copied so that they survive a move of the context object.
  [[nodiscard]] const device_limits& limits() const noexcept { return limits_; }

 private:
  struct deallocator {
    void operator()(ibv_pd* pd) const noexcept;
    void operator()(ibv_td* td) const noexcept;
  };
  /// \errors  ENOMEM and the like. A device that has no thread domains is none.
  void make_thread_domain(context& ctx);

  std::unique_ptr<ibv_pd, deallocator> pd_;
  std::unique_ptr<ibv_td, deallocator> td_;
  std::unique_ptr<ibv_pd, deallocator> parent_;
  queue_domain queues_ = queue_domain::itself;
  device_limits limits_;
};

}  // namespace cordma::verbs
