#pragma once

#include <cordma/detail/base/export.hpp>
#include <cordma/verbs/access.hpp>
#include <cordma/verbs/completion_queue.hpp>
#include <cordma/verbs/protection_domain.hpp>
#include <cordma/verbs/queue_pair_attributes.hpp>

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

/// The states of a queue pair (IBTA 10.3.1, ibv_query_qp(3)).
enum class queue_pair_state : int {
  reset = IBV_QPS_RESET,  ///< New: nothing can be posted.
  init = IBV_QPS_INIT,    ///< Receives can be posted.
  rtr = IBV_QPS_RTR,      ///< Ready to receive: the peer is known.
  rts = IBV_QPS_RTS,      ///< Ready to send.
  sqd = IBV_QPS_SQD,      ///< Send queue drained. cordma never goes there.
  sqe = IBV_QPS_SQE,      ///< Send queue error. A reliable connection never goes there.
  error = IBV_QPS_ERR,    ///< All requests complete as flushed.
};

/// Returns the specification's name: "RTS", "UD".
CORDMA_EXPORT const char* to_string(queue_pair_state state) noexcept;
CORDMA_EXPORT const char* to_string(queue_pair_type type) noexcept;

/// Owns one `ibv_qp`. Move-only. Its protection domain and completion queues
/// must outlive it. Each work request selects its own signaling (`IBV_SEND_SIGNALED`). \thread one
/// at a time.
class CORDMA_EXPORT queue_pair {
 public:
  /// \param qp_context  `ibv_qp::qp_context`.
  /// \param srq  supplies the receives, and is of the same domain. The queue pair then has no
  ///   receive queue, and `wanted` says nothing about receives.
  /// \errors  errc::limit_exceeded: `wanted` is above the device's limits; names both numbers.
  ///   errc::not_supported: another `type`; names what it needs. ENOMEM: RLIMIT_MEMLOCK may be too
  ///   low (the detail gives it).
  /// \cost  one system call.
  queue_pair(protection_domain& pd, completion_queue& send_cq, completion_queue& recv_cq,
             const queue_pair_capabilities& wanted, void* qp_context = nullptr,
             shared_receive_queue* srq = nullptr, queue_pair_type type = queue_pair_type::rc);
  /// Makes an XRC target, which has no queues of its own. `domain` outlives it.
  /// \errors  ENOMEM, or another errno of ibv_create_qp_ex(3). \cost  one system call.
  explicit queue_pair(xrc_domain& domain, void* qp_context = nullptr);

  [[nodiscard]] ibv_qp* native_handle() const noexcept { return qp_.get(); }
  [[nodiscard]] std::uint32_t num() const noexcept { return qp_->qp_num; }
  [[nodiscard]] queue_pair_type type() const noexcept { return queue_pair_type(qp_->qp_type); }
  /// Returns the port that `to_init` set; 0 before.
  [[nodiscard]] std::uint8_t port() const noexcept { return port_; }
  /// Returns the READs and atomics that may be in flight, as `to_rts` set; 0: none are possible.
  [[nodiscard]] std::uint32_t rd_atomic_max() const noexcept { return rd_atomic_max_; }
  /// Returns true if the queue pair takes `atomic_write`: RC, on a device that has it.
  [[nodiscard]] bool has_atomic_write() const noexcept { return has_atomic_write_; }
  /// Returns the capabilities that the device gave: at least what was wanted.
  [[nodiscard]] const queue_pair_capabilities& capabilities() const noexcept { return caps_; }

  /// Returns the state last set or queried. The device moves a queue pair to ERROR by itself.
  [[nodiscard]] queue_pair_state state() const noexcept { return queue_pair_state(qp_->state); }
  /// Queries the state, which `state()` then returns as well. \cost  one system call.
  [[nodiscard]] queue_pair_state query_state() const;

  /// The following calls move the queue pair to the named state, with one system call each. UC uses
  /// no attributes of retries, READs and atomics; of XRC each half uses its own.
  /// \errors  errc::illegal_transition: not possible from `state()`; names the states allowed.
  ///   errc::limit_exceeded: an attribute is out of range; names it and its limit.
  ///   errc::not_supported: the call is not for the queue pair's type. An errno of
  ///   ibv_modify_qp(3): the detail names the faulty attribute if possible.
  void to_init(std::uint8_t port, std::uint16_t pkey_index = 0, access remote = access::none);
  void to_rtr(const rtr_attributes& attributes);
  void to_rts(const rts_attributes& attributes);
  void to_error();
  void to_reset();
  /// Moves a UD queue pair from RESET to RTS, with three system calls. \errors as above.
  void to_ud_rts(const datagram_attributes& attributes);
  /// Makes a UD queue pair receive a multicast group's datagrams, or no longer (IBTA 10.5.2).
  /// \errors  an errno of ibv_attach_mcast(3): the detail names the group.
  void attach(const ibv_gid& group, std::uint16_t lid = 0);
  void detach(const ibv_gid& group, std::uint16_t lid = 0);
  /// Replaces what the peer may do, which `to_init` has set; in RTS (IBTA 11.2.5.2, RTS to RTS).
  /// \errors  errc::illegal_transition: not in RTS. An errno of ibv_modify_qp(3).
  void allow(access remote);
  /// Limits what the queue pair sends to so many thousand bits a second, in bursts of at most
  /// `burst_bytes`; 0: the device's own. Without limit if `kbps` is 0. In RTS; a reset forgets it
  /// (ibv_modify_qp_rate_limit(3)). The data of READs are the peer's to limit. `static_rate` of an
  /// address, in contrast, is a rate of links.
  /// \errors  errc::not_supported: the device limits no queue pair of this type; names what it
  ///   needs. errc::limit_exceeded: `kbps` is out of the device's range; names it.
  ///   errc::illegal_transition: not in RTS. An errno of ibv_modify_qp_rate_limit(3).
  void limit_rate(std::uint32_t kbps, std::uint32_t burst_bytes = 0);

  /// Posts requests. Returns 0 or an errno; after an error `bad` is the refused request
  /// (ibv_post_send(3), ibv_post_recv(3)). \cost  no system call on hardware.
  [[nodiscard]] int post_send(ibv_send_wr* wr, ibv_send_wr** bad) noexcept {
    return ibv_post_send(qp_.get(), wr, bad);
  }
  [[nodiscard]] int post_recv(ibv_recv_wr* wr, ibv_recv_wr** bad) noexcept {
    return ibv_post_recv(qp_.get(), wr, bad);
  }

  /// Destroys the queue pair; the device then touches no memory of its work requests. Idempotent.
  /// Afterwards only destruction and assignment are allowed. \cost  one bounded system call.
  void destroy() noexcept { qp_.reset(); }

 private:
  struct destroyer {
    void operator()(ibv_qp* qp) const noexcept;
  };
  void modify(queue_pair_state to, ibv_qp_attr& attributes, int mask);
  /// \errors errc::not_supported: the queue pair is UD, and should not be, or the reverse.
  void check_type(bool wants_datagrams) const;

  std::unique_ptr<ibv_qp, destroyer> qp_;
  queue_pair_capabilities caps_;
  device_limits limits_;
  std::uint8_t port_ = 0;            // Set by to_init; RTR needs it again.
  std::uint32_t rd_atomic_max_ = 1;  // Set by to_rts.
  bool has_atomic_write_ = false;
};

}  // namespace cordma::verbs
