#pragma once

#include <cordma/verbs/protection_domain.hpp>
#include <cordma/verbs/queue_pair_attributes.hpp>

#include <infiniband/verbs.h>

#include <cstdint>
#include <memory>

namespace cordma::verbs {

/// Owns one `ibv_ah`: the path to a port or a multicast group, for datagrams. It must outlive the
/// requests that name it. Move-only; its domain must outlive it. \thread one at a time.
class address_handle {
 public:
  /// Makes a handle for datagrams from `port`. On RoCE the kernel looks for the peer's Ethernet
  /// address first, and waits for a second or so if nobody answers.
  /// \errors  errc::limit_exceeded: a field of `to` is out of range. ETIMEDOUT, EHOSTUNREACH,
  ///   ENETUNREACH, ENODATA: there is no route; the detail names the GID. ENOMEM.
  /// \cost  one system call.
  address_handle(protection_domain& pd, std::uint8_t port, const address_vector& to);

  [[nodiscard]] ibv_ah* native_handle() const noexcept { return ah_.get(); }

 private:
  struct destroyer {
    void operator()(ibv_ah* ah) const noexcept;
  };
  std::unique_ptr<ibv_ah, destroyer> ah_;
};

}  // namespace cordma::verbs
