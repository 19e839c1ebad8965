#pragma once

#include <cordma/verbs/device.hpp>

#include <infiniband/verbs.h>

#include <memory>
#include <optional>

namespace cordma::verbs {

/// Event of an armed completion queue that got a CQE.
struct completion_event {
  ibv_cq* cq = nullptr;
  void* cq_context = nullptr;  ///< Argument with which that `completion_queue` was made.
};

/// Owns one `ibv_comp_channel`: the file descriptor that armed completion queues write to.
/// Move-only; must outlive its completion queues. \thread one at a time.
class completion_channel {
 public:
  /// \errors  EMFILE, ENFILE: no file descriptor left. \cost  one system call.
  explicit completion_channel(context& ctx);

  [[nodiscard]] ibv_comp_channel* native_handle() const noexcept { return channel_.get(); }
  /// Returns the descriptor, which is O_NONBLOCK. Readiness may be edge-triggered: after each
  /// wake-up, call `get_event` until empty, or until no queue on the channel is armed any more.
  [[nodiscard]] int fd() const noexcept { return channel_->fd; }

  /// Reads one event; empty when there is none now. The event's completion queue counts it as
  /// unacknowledged, see `completion_queue::ack_events`.
  /// \errors  EIO: the device is gone. \cost  one system call.
  [[nodiscard]] std::optional<completion_event> get_event();

 private:
  struct destroyer {
    void operator()(ibv_comp_channel* channel) const noexcept;
  };

  std::unique_ptr<ibv_comp_channel, destroyer> channel_;
};

}  // namespace cordma::verbs
