#pragma once

#include <cordma/detail/base/export.hpp>
#include <cordma/verbs/protection_domain.hpp>

#include <infiniband/verbs.h>

#include <cstdint>
#include <memory>

namespace cordma::verbs {

/// Capacity of a shared receive queue, as requested; the device may give more.
struct shared_receive_queue_capabilities {
  std::uint32_t wr_max = 128;  ///< Receives that are posted at once.
  std::uint32_t sge_max = 1;   ///< Slices of one receive.
};

/// Owns one `ibv_srq` (ibv_create_srq(3)): receives for the messages of all its queue pairs. The
/// completion names the queue pair (`ibv_wc::qp_num`). A queue pair in ERROR flushes only the
/// receives that it has taken. IBV_EVENT_QP_LAST_WQE_REACHED reports that it takes no more (IBTA
/// 10.2.9.3).
///
/// Move-only; must outlive its queue pairs. Its domain must outlive it. \thread one at a time.
class CORDMA_EXPORT shared_receive_queue {
 public:
  /// \param srq_context  `ibv_srq::srq_context`.
  /// \errors  errc::not_supported: the device has no such queues. errc::limit_exceeded: `wanted` is
  ///   above the device's limits; names both numbers. ENOMEM: no queue is left
  ///   (`device_limits::srq_max`), or RLIMIT_MEMLOCK is too low.
  /// \cost  one system call.
  shared_receive_queue(protection_domain& pd, const shared_receive_queue_capabilities& wanted,
                       void* srq_context = nullptr);

  [[nodiscard]] ibv_srq* native_handle() const noexcept { return srq_.get(); }
  /// Returns the capabilities that the device gave: at least what was wanted.
  [[nodiscard]] const shared_receive_queue_capabilities& capabilities() const noexcept {
    return caps_;
  }

  /// Posts receives. Returns 0 or an errno; after an error `bad` is the refused request
  /// (ibv_post_srq_recv(3)). \cost  no system call on hardware.
  [[nodiscard]] int post(ibv_recv_wr* wr, ibv_recv_wr** bad) noexcept {
    return ibv_post_srq_recv(srq_.get(), wr, bad);
  }

  /// Asks for one IBV_EVENT_SRQ_LIMIT_REACHED when fewer than `limit` receives are left (IBTA
  /// 10.2.9.2). \errors an errno of ibv_modify_srq(3). \cost  one system call.
  void arm_limit(std::uint32_t limit);

  /// Destroys the queue; the device then touches no memory of its receives. Idempotent. Afterwards
  /// only destruction and assignment are allowed. Contract: no queue pair uses it any more.
  void destroy() noexcept { srq_.reset(); }

 private:
  struct destroyer {
    void operator()(ibv_srq* srq) const noexcept;
  };
  std::unique_ptr<ibv_srq, destroyer> srq_;
  shared_receive_queue_capabilities caps_;
};

}  // namespace cordma::verbs
