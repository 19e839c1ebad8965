#pragma once

#include "protocol.hpp"
#include "queue/callback_queue_pair.hpp"
#include "queue/message_handler.hpp"

#include <cordma/coro/event.hpp>
#include <cordma/detail/base/intrusive_list.hpp>
#include <cordma/detail/coro/waiter.hpp>
#include <cordma/memory/mr_allocator.hpp>

#include <array>
#include <cstddef>
#include <cstdint>

namespace cordma {

/// Carries an agent's frames over a queue pair of its own. Each side keeps as many receives posted
/// as there are credits. Every frame says how many the other side has got back, so nothing is sent
/// that has no receive. A frame that waits for credits waits in the memory of its sender. Frames
/// are handled in the middle of a reap.
///
/// | state | what moves it | next state |
/// | --- | --- | --- |
/// | new | `start` | running: `is_running_` |
/// | running | `pump` | pumping: `is_pumping_`, until it returns |
/// | running | `settled` | settling: `is_settling_`, for good |
/// | running | `stop`, or a frame that `take` refuses | over: it sends and takes nothing |
///
/// A call of `pump` while another is pumping leaves its frames to that, and sets `sends_later_` if
/// frames that were put off go, too. While the channel is settling, `settle` sets the event once
/// all was sent.
/// \thread the executor's. \cost one SEND a frame, of which each sixteenth has a CQE; the queue
/// pair allocates its ring with the second frame.
class control_channel final : private message_handler, private waiter {
 public:
  using frame = agent_protocol::frame;

  /// A frame that is sent when there is credit for it. Destroying it takes it back.
  struct outgoing : list_hook<outgoing> {
    agent_protocol::frame frame;
    /// The frame has been posted. May destroy this object.
    void (*on_sent)(outgoing&) noexcept = nullptr;
  };
  class listener {
   public:
    /// `slot` must be released, or replied to: until then the peer has one credit less.
    virtual void on_frame(const frame& f, unsigned slot) noexcept = 0;
    /// The peer does not keep to the protocol.
    virtual void on_bad_frame(const failure& why) noexcept = 0;
    /// The queue pair has failed.
    virtual void on_channel_failure() noexcept {}

   protected:
    ~listener() = default;
  };

  /// A queue pair in RESET. \errors what the verbs and the allocator throw.
  control_channel(completion_queue_driver& driver, verbs::protection_domain& pd,
                  mr_allocator& memory, listener& up);
  control_channel(const control_channel&) = delete;
  control_channel& operator=(const control_channel&) = delete;
  ~control_channel();

  [[nodiscard]] callback_queue_pair& qp() noexcept { return qp_; }

  /// Posts the receives: in INIT or later, before the peer can send.
  void post_receives();
  /// In RTS, before the first reap.
  void start() noexcept { is_running_ = true; }
  [[nodiscard]] bool is_running() const noexcept { return is_running_; }
  /// Ends the sending, and forgets frames that wait.
  void stop() noexcept;

  void send(outgoing& o) noexcept;
  /// Sends at the end of the event-loop iteration, or with what is sent before that. The
  /// iteration's questions go first.
  void send_later(outgoing& o) noexcept;
  [[nodiscard]] bool has_put_off() const noexcept { return !later_.empty(); }
  void reply(unsigned slot, const frame& f) noexcept;
  void release(unsigned slot) noexcept;
  /// Tells the peer of slots that were released outside of `listener::on_frame`, if they are many.
  void tell_credits() noexcept { pump(); }

  /// Waits until the peer's device has all that was sent, frames that wait for credits included, or
  /// the channel no longer works. Unanswered questions wait on.
  event::wait_op settled() noexcept;
  [[nodiscard]] bool has_settled() const noexcept { return settled_.is_set(); }
  /// Asks the peer's device whether it is there, by a frame whose end the device tells. Returns
  /// false, and asks nothing, if the answer to the last call is due still.
  bool probe() noexcept;

 private:
  using list = intrusive_list<outgoing>;
  using buffer = agent_protocol::frame_bytes_t;

  struct answer : outgoing {
    control_channel* channel = nullptr;
    unsigned slot = 0;
  };

  // The calls of the queue pair.
  void on_receive(std::uint32_t slot, const ibv_wc& wc) noexcept override;
  bool on_room() noexcept override;
  /// Has the device tell the end of all that was sent, by one more frame if need be.
  void on_idle_awaited() noexcept override;
  void on_failure() noexcept override {
    settled_.set();
    up_.on_channel_failure();
  }
  void on_gone() noexcept override {}

  void post_receives(unsigned first, unsigned count) noexcept;
  void take(unsigned slot, std::size_t size_bytes) noexcept;
  void take_credits(const frame& f);
  /// True if a frame may go now, and fewer than `in_flight_max` are under way to the peer.
  [[nodiscard]] bool may_send(std::uint32_t in_flight_max) const noexcept;
  [[nodiscard]] outgoing* next() noexcept;
  /// Sends what there is credit for. `later_too`: frames that were put off, too.
  void pump(bool later_too = false) noexcept;
  void send_next(outgoing& o) noexcept;
  void settle() noexcept;
  void post(frame& f, unsigned send_flags = 0) noexcept;
  void post_signaled() noexcept;
  [[nodiscard]] std::uint32_t in_flight() const noexcept { return sent_ - taken_by_peer_; }

  listener& up_;
  local_mr memory_;
  buffer* const buffers_;   ///< for the receives
  callback_queue_pair qp_;  // After the memory, which its receives do not keep.
  bool is_running_ = false;
  bool is_pumping_ = false;
  bool sends_later_ = false;  ///< the pump sends frames that were put off
  bool is_settling_ = false;
  event settled_;

  // Frames are counted modulo 2^32.
  std::uint32_t sent_ = 0;
  std::uint32_t taken_by_peer_ = 0;
  std::uint32_t taken_ = 0;
  std::uint32_t told_ = 0;       ///< frames of `taken_` that the peer knows of
  std::uint32_t questions_ = 0;  ///< not answered
  std::uint32_t probed_ = 0;     ///< frames of `sent_` at the last probe
  list notices_;
  list waiting_questions_;
  list later_;
  std::array<answer, agent_protocol::credits> answers_;
};

}  // namespace cordma
