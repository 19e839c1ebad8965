#pragma once

#include <cordma/detail/base/export.hpp>
#include <cordma/verbs/device.hpp>
#include <cordma/verbs/protection_domain.hpp>

#include <infiniband/verbs.h>

#include <memory>
#include <span>

namespace cordma::verbs {

/// Owns one `ibv_comp_channel`: the file descriptor that armed completion queues write to.
/// Move-only; must outlive its completion queues. \thread one at a time.
class CORDMA_EXPORT completion_channel {
 public:
  /// \errors  EMFILE, ENFILE: no file descriptor left. \cost  one system call.
  explicit completion_channel(context& ctx);

  [[nodiscard]] ibv_comp_channel* native_handle() const noexcept { return channel_.get(); }
  /// Returns the descriptor, which is O_NONBLOCK. Readiness may be edge-triggered: after each
  /// wake-up, call `get_event` until empty, or until no queue on the channel is armed any more.
  [[nodiscard]] int fd() const noexcept { return channel_->fd; }

  /// Reads one event: returns the armed completion queue that got a CQE, or null when there is no
  /// event now. That queue counts the event as unacknowledged, see `completion_queue::ack_events`.
  /// \errors  EIO: the device is gone. \cost  one system call.
  [[nodiscard]] ibv_cq* get_event();

 private:
  struct destroyer {
    void operator()(ibv_comp_channel* channel) const noexcept;
  };

  std::unique_ptr<ibv_comp_channel, destroyer> channel_;
};

/// Owns one `ibv_cq`. Move-only; must outlive every queue pair that completes into it. Its channel
/// must outlive it. \thread one at a time.
class CORDMA_EXPORT completion_queue {
 public:
  /// \param depth  CQEs (not bytes); the device may round up, see `capacity()`.
  /// \param channel  null: the queue cannot be armed, only polled.
  /// \param pd  with a thread domain: the queue is made there, if the driver makes any there.
  /// \errors  errc::limit_exceeded: `depth` is 0 or above `device_limits::cqe_max`, or the device
  ///   has no such `comp_vector`. ENOMEM: RLIMIT_MEMLOCK may be too low (the detail gives it).
  /// \cost  one system call; never on the data path.
  completion_queue(context& ctx, unsigned depth, completion_channel* channel = nullptr,
                   int comp_vector = 0, const protection_domain* pd = nullptr);

  [[nodiscard]] ibv_cq* native_handle() const noexcept { return cq_.get(); }
  [[nodiscard]] unsigned capacity() const noexcept { return static_cast<unsigned>(cq_->cqe); }

  /// Reaps up to `completions.size()` completions. Returns how many, negative when the device
  /// failed (ibv_poll_cq(3)). \cost  no system call.
  [[nodiscard]] int poll(std::span<ibv_wc> completions) noexcept {
    return ibv_poll_cq(cq_.get(), static_cast<int>(completions.size()), completions.data());
  }

  /// Arms the queue: the next completion raises one event (ibv_req_notify_cq(3)). A completion
  /// since the last poll may raise none: poll again after arming, before waiting. Returns 0 or an
  /// errno.
  [[nodiscard]] int arm(bool solicited_only = false) noexcept {
    return ibv_req_notify_cq(cq_.get(), solicited_only ? 1 : 0);
  }

  /// Returns the events read from the channel for this queue and not yet acknowledged.
  [[nodiscard]] unsigned unacknowledged_events() const noexcept {
    return cq_ == nullptr ? 0 : *count_of(*cq_);
  }
  /// Acknowledges all events. \cost  a mutex in libibverbs: call it for a batch, not for each
  /// event.
  void ack_events() noexcept;

  /// Acknowledges the remaining events (`ibv_destroy_cq` would wait for them for ever), then
  /// destroys the queue. Idempotent. Contract: no queue pair uses it any more.
  void destroy() noexcept { cq_.reset(); }

 private:
  friend class completion_channel;
  struct destroyer {
    void operator()(ibv_cq* cq) const noexcept;
  };

  /// Returns where the unacknowledged events of `cq` are counted. The count never moves when the
  /// owner does, so that an event read from the channel is counted with the right queue.
  static unsigned* count_of(const ibv_cq& cq) noexcept {
    return static_cast<unsigned*>(cq.cq_context);
  }

  std::unique_ptr<ibv_cq, destroyer> cq_;
};

}  // namespace cordma::verbs
