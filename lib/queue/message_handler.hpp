#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

namespace cordma {

/// Sends and receives a queue pair's messages without operations: a message stream, or an agent's
/// control channel. The queue pair calls its handler in the middle of a reap, where the handler may
/// post, and must resume nobody. Thread: the executor's.
class message_handler {
 public:
  /// A receive has ended that the handler posted under this number. A failed one breaks the queue
  /// pair, which the handler is told next. With a pool: a message is in one of its buffers, which
  /// is the handler's until `shared_receives::give_back`; a failed receive is told by `on_failure`
  /// alone.
  virtual void on_receive(std::uint32_t number, const ibv_wc& wc) noexcept = 0;
  /// The send queue may have room again. The handler is asked before operations that wait for room:
  /// credits bound what it sends, and the peer may wait for that. True: the handler needs more room
  /// than there is, and no operation gets any until the handler has had it.
  virtual bool on_room() noexcept = 0;
  /// Somebody waits until all that was sent has ended: a signaled request should follow those that
  /// are not.
  virtual void on_idle_awaited() noexcept = 0;
  /// With a pool, other queue pairs lack buffers: the share should shrink to what it needs, when
  /// the peer agrees (`receive_share::try_shrink_to`). Not called again before the share has.
  /// Perhaps outside a reap.
  virtual void on_shrink_wanted() noexcept {}
  /// With a pool, the handler wanted more in vain (`receive_share::want`), and may try again.
  /// Outside a reap.
  virtual void on_growth_possible() noexcept {}
  /// The queue pair no longer works, and is in ERROR; the device may still have the receives.
  virtual void on_failure() noexcept = 0;
  /// The queue pair is gone, and the device touches its memory no more: the handler's last call.
  virtual void on_gone() noexcept = 0;

 protected:
  ~message_handler() = default;
};

}  // namespace cordma
