#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

namespace cordma {

/// Sends and receives a queue pair's messages without operations: a message stream, or an agent's
/// control channel. The queue pair calls its handler in the middle of a reap. The handler may post
/// there, and must resume no coroutine. \thread the executor's.
class message_handler {
 public:
  /// Notifies that the receive which the handler posted under this number has ended. A failed one
  /// breaks the queue pair, and `on_failure` follows. With a pool, the message is in the buffer of
  /// that number, which the handler has until `shared_receives::give_back`. A pool's failed receive
  /// is reported by `on_failure` alone.
  virtual void on_receive(std::uint32_t number, const ibv_wc& wc) noexcept = 0;
  /// Notifies that the send queue may have room. The handler comes before operations that wait for
  /// room, because credits bound its sends and the peer may wait for them. Return true if it needs
  /// more room than there is; no operation gets room until then.
  virtual bool on_room() noexcept = 0;
  /// Notifies that a task waits until everything sent has ended. A signaled request should follow
  /// the unsignaled ones.
  virtual void on_idle_awaited() noexcept = 0;
  /// Notifies, with a pool, that other queue pairs lack buffers. The handler should shrink its
  /// share to what it needs, when the peer agrees (`receive_share::try_shrink_to`). The call is not
  /// repeated before the share has shrunk, and may come outside a reap.
  virtual void on_shrink_wanted() noexcept {}
  /// Notifies, with a pool, that a share which wanted more in vain (`receive_share::want`) may try
  /// again. The call comes outside a reap.
  virtual void on_growth_possible() noexcept {}
  /// Notifies that the queue pair no longer works and is in ERROR. The device may still have the
  /// receives.
  virtual void on_failure() noexcept = 0;
  /// Notifies that the queue pair is destroyed and the device touches its memory no more. The call
  /// is the handler's last.
  virtual void on_gone() noexcept = 0;

 protected:
  ~message_handler() = default;
};

}  // namespace cordma
