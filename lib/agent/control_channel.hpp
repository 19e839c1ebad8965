#pragma once

#include "protocol.hpp"
#include "queue/queue_pair_base.hpp"

#include <cordma/memory/mr_allocator.hpp>

#include <array>

namespace cordma {

/// Carries an agent's frames over a queue pair of its own. Each side keeps as many receives posted
/// as there are credits, and every frame says how many the other has got back: nothing is sent that
/// has no receive. What waits for credits waits in the memory of whoever sends it. Frames are
/// handled in the middle of a reap. Thread: the executor's. Cost of a frame: one SEND, of which
/// each sixteenth has a completion entry; no allocation.
class control_channel final : public queue_pair_base, private waiter {
 public:
  using frame = agent_protocol::frame;

  /// A frame that is sent when there is credit for it. Destroying it takes it back.
  struct outgoing : list_hook<outgoing> {
    agent_protocol::frame frame;
    /// It is on its way; may destroy it.
    void (*on_sent)(outgoing&) noexcept = nullptr;
  };
  class listener {
   public:
    /// `slot` must be released, or replied to: until then the peer has one credit less.
    virtual void on_frame(const frame& f, unsigned slot) noexcept = 0;
    /// The peer does not keep to the protocol.
    virtual void on_bad_frame(const failure& why) noexcept = 0;

   protected:
    ~listener() = default;
  };

  /// A queue pair in RESET. \errors what the verbs and the allocator throw.
  control_channel(completion_queue_driver& driver, verbs::protection_domain& pd,
                  mr_allocator& memory, listener& up);
  ~control_channel();

  /// Posts the receives: in INIT or later, before the peer can send.
  void post_receives();
  /// In RTS.
  void start() noexcept;
  /// Nothing is sent any more; what waits is forgotten.
  void stop() noexcept;

  void send(outgoing& o) noexcept;
  /// At the end of the turn, or with what comes before that: nobody waits for it, and the turn's
  /// questions go first.
  void send_later(outgoing& o) noexcept;
  [[nodiscard]] bool has_put_off() const noexcept { return !later_.empty(); }
  void reply(unsigned slot, const frame& f) noexcept;
  void release(unsigned slot) noexcept;

  /// Waits until the peer's device has all that was sent, what waits for credits too, or this no
  /// longer works. Unanswered questions wait on.
  event::wait_op settled() noexcept;
  /// Receives that the device has.
  [[nodiscard]] std::uint32_t posted_receives() const noexcept { return posted_; }

 private:
  using list = intrusive_list<outgoing>;
  using buffer = agent_protocol::frame_bytes_t;

  struct answer : outgoing {
    control_channel* home = nullptr;
    unsigned slot = 0;
  };

  static void on_answer_sent(outgoing& o) noexcept;
  static std::coroutine_handle<> on_turn(waiter& self) noexcept;
  void complete(bool is_receive, std::uint32_t sequence, const ibv_wc& wc) noexcept override;
  void on_failure(const request_outcome&) noexcept override { settled_.set(); }
  void end_all(const request_outcome& why) noexcept override { static_cast<void>(why); }
  void post_receive(unsigned slot) noexcept;
  void take(unsigned slot, std::size_t size_bytes) noexcept;
  void take_credits(const frame& f);
  [[nodiscard]] bool may_send(std::uint32_t under_way_max) const noexcept;
  [[nodiscard]] outgoing* next(bool later_too) noexcept;
  void pump(bool later_too = false) noexcept;
  void settle() noexcept;
  void post(frame& f, bool signaled = false) noexcept;
  [[nodiscard]] std::uint32_t under_way() const noexcept { return sent_ - taken_by_peer_; }

  listener& up_;
  local_mr memory_;
  buffer* const buffers_;  ///< the receives'
  ibv_sge piece_{};
  ibv_recv_wr receive_{};
  ibv_send_wr send_{};
  bool is_running_ = false;

  std::array<std::size_t, agent_protocol::credits> early_sizes_{};
  unsigned early_ = 0;

  std::uint32_t posted_ = 0;
  std::uint32_t sent_ = 0;
  std::uint32_t ended_ = 0;  ///< of `sent_`: the device is done with them
  std::uint32_t last_signaled_ = ~0u;
  event settled_;
  bool is_settling_ = false;
  std::uint32_t taken_by_peer_ = 0;
  std::uint32_t taken_ = 0;
  std::uint32_t told_ = 0;       ///< of `taken_`, as the peer knows
  std::uint32_t questions_ = 0;  ///< not answered
  list notices_;
  list waiting_questions_;
  list later_;
  std::array<answer, agent_protocol::credits> answers_;
};

}  // namespace cordma
