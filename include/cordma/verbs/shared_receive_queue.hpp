#pragma once

#include <cordma/detail/base/export.hpp>
#include <cordma/verbs/completion_queue.hpp>
#include <cordma/verbs/protection_domain.hpp>

#include <infiniband/verbs.h>

#include <cstdint>
#include <memory>
#include <string_view>

namespace cordma::verbs {

/// Owns one open XRC domain, an `ibv_xrcd` (ibv_open_xrcd(3)). Processes that open a domain by one
/// file share it: a target in one of them takes requests for the receive queues of all.
///
/// Move-only; must outlive its queues and targets. Its context must outlive it. \thread any.
class CORDMA_EXPORT xrc_domain {
 public:
  /// Opens a domain that no other owner has.
  /// \errors  errc::not_supported: the device has no XRC. An errno of ibv_open_xrcd(3).
  explicit xrc_domain(context& ctx);
  /// Opens the domain of a file, which need not stay open. Whoever may open the file can share the
  /// domain. \errors  as above; EBADF.
  xrc_domain(context& ctx, int file);
  /// Opens the domain of the file at `path`, which is made if it is missing, for this user alone.
  /// \errors  as above; an errno of open(2): ELOOP for a symbolic link. EINVAL: no regular file, or
  ///   a NUL in the path. EPERM: the file is another user's, and not root's.
  xrc_domain(context& ctx, std::string_view path);

  [[nodiscard]] ibv_xrcd* native_handle() const noexcept { return domain_.get(); }
  [[nodiscard]] const device_limits& limits() const noexcept { return limits_; }

 private:
  struct closer {
    void operator()(ibv_xrcd* domain) const noexcept;
  };
  void open(context& ctx, int file);

  std::unique_ptr<ibv_xrcd, closer> domain_;
  device_limits limits_;
};

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
  /// Makes the receive queue of an XRC domain. Its messages complete on `cq`, and take the memory
  /// of `pd`. All three outlive it. \errors  as above; errc::not_supported: no XRC.
  shared_receive_queue(protection_domain& pd, xrc_domain& domain, completion_queue& cq,
                       const shared_receive_queue_capabilities& wanted,
                       void* srq_context = nullptr);

  [[nodiscard]] ibv_srq* native_handle() const noexcept { return srq_.get(); }
  /// Returns the number that XRC initiators name; 0: the queue is in no XRC domain.
  [[nodiscard]] std::uint32_t num() const noexcept { return num_; }
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
  std::uint32_t num_ = 0;
};

}  // namespace cordma::verbs
