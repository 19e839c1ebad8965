#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

namespace cordma {

/// Who makes a queue pair's messages without operations: posts its receives, and is told in the
/// middle of a reap, where it may post, and must resume nobody.
/// Thread: the executor's.
class message_handler {
 public:
  /// A receive that it posted, by the number that it gave. A failed one breaks the queue pair,
  /// which the handler is told next. With a pool: a message in one of its buffers, which is the
  /// handler's until `shared_receives::give_back`; of failed receives only the end is told.
  virtual void on_receive(std::uint32_t number, const ibv_wc& wc) noexcept = 0;
  /// The send queue may have room again. The handler is asked before those who wait for it: it has
  /// a bound of its own, and the peer may wait for what it has to say. True: it has something that
  /// needs more than there is, and nobody else gets any until it has had that.
  virtual bool on_room() noexcept = 0;
  /// Somebody waits until all that was sent has ended: something with a completion entry should
  /// follow what has none.
  virtual void on_idle_awaited() noexcept = 0;
  /// With a pool, others lack buffers: the share should shrink to what it needs, when the peer
  /// agrees (`receive_share::try_shrink_to`). Not again before it has. Perhaps outside a reap.
  virtual void on_shrink_wanted() noexcept {}
  /// With a pool, it wanted more in vain (`receive_share::want`), and may try again if it still
  /// does. Outside a reap.
  virtual void on_growth_possible() noexcept {}
  /// The queue pair no longer works, and is in ERROR; the device may still have the receives.
  virtual void on_failure() noexcept = 0;
  /// The queue pair is gone, and the device touches its memory no more: the handler's last call.
  virtual void on_gone() noexcept = 0;

 protected:
  ~message_handler() = default;
};

}  // namespace cordma
