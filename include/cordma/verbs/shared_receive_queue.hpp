#pragma once

#include <cordma/detail/base/export.hpp>
#include <cordma/verbs/protection_domain.hpp>

#include <infiniband/verbs.h>

#include <cstdint>
#include <memory>

namespace cordma::verbs {

/// How much a shared receive queue holds. Asked for before it is made; the device may give more.
struct shared_receive_queue_capabilities {
  std::uint32_t wr_max = 128;  ///< Receives that are posted at once.
  std::uint32_t sge_max = 1;   ///< Slices of one receive.
};

/// Owns one `ibv_srq` (ibv_create_srq(3)): receives that whichever of its queue pairs takes that a
/// message comes to; the completion names the queue pair (`ibv_wc::qp_num`). A queue pair in ERROR
/// gives back, flushed, only what it has taken, and says by IBV_EVENT_QP_LAST_WQE_REACHED that it
/// takes no more (IBTA 10.2.9.3). Move-only; outlives its queue pairs, and is outlived by its
/// domain.
/// \thread one at a time.
class CORDMA_EXPORT shared_receive_queue {
 public:
  /// \param srq_context  `ibv_srq::srq_context`.
  /// \errors  errc::not_supported: the device has none. errc::limit_exceeded: `wanted` is above its
  ///   limits; names both numbers. ENOMEM: it has none left (`device_limits::srq_max`), or
  ///   RLIMIT_MEMLOCK is too low. \cost  one system call.
  shared_receive_queue(protection_domain& pd, const shared_receive_queue_capabilities& wanted,
                       void* srq_context = nullptr);

  [[nodiscard]] ibv_srq* native_handle() const noexcept { return srq_.get(); }
  /// What the device gave: at least what was wanted.
  [[nodiscard]] const shared_receive_queue_capabilities& capabilities() const noexcept {
    return caps_;
  }

  /// Returns 0 or an errno, and at an error the request that was refused in `bad`
  /// (ibv_post_srq_recv(3)). \cost  no system call on hardware.
  [[nodiscard]] int post(ibv_recv_wr* wr, ibv_recv_wr** bad) noexcept {
    return ibv_post_srq_recv(srq_.get(), wr, bad);
  }

  /// After it returns the device touches no memory of its receives. Idempotent; afterwards only
  /// destruction and assignment are allowed. Contract: no queue pair uses it any more.
  void destroy() noexcept { srq_.reset(); }

 private:
  struct destroyer {
    void operator()(ibv_srq* srq) const noexcept;
  };
  std::unique_ptr<ibv_srq, destroyer> srq_;
  shared_receive_queue_capabilities caps_;
};

}  // namespace cordma::verbs
