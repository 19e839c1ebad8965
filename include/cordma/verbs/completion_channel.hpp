#pragma once

#include <cordma/verbs/device.hpp>

#include <infiniband/verbs.h>

#include <memory>
#include <optional>

namespace cordma::verbs {

/// An armed completion queue got an entry.
struct completion_event {
  ibv_cq* cq = nullptr;
  void* cq_context = nullptr;  ///< What that `completion_queue` was made with.
};

/// Owns one `ibv_comp_channel`: the file descriptor that armed completion queues write to.
/// Move-only; must outlive its completion queues. \thread one at a time.
class completion_channel {
 public:
  /// \errors  EMFILE, ENFILE: no file descriptor left. \cost  one system call.
  explicit completion_channel(context& ctx);

  [[nodiscard]] ibv_comp_channel* native_handle() const noexcept { return channel_.get(); }
  /// O_NONBLOCK. Readiness may be edge-triggered: after each wake-up, `get_event` until empty, or
  /// until no queue on it is armed any more.
  [[nodiscard]] int fd() const noexcept { return channel_->fd; }

  /// Reads one event; empty when there is none now. The completion queue it names counts it as
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
