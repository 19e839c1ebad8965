#pragma once

#include "protocol.hpp"

#include <cordma/memory/mr_allocator.hpp>
#include <cordma/transfer/queue_pair.hpp>

#include <array>
#include <optional>

namespace cordma {

/// Carries an agent's frames over a queue pair of its own. Each side keeps as many receives posted
/// as there are credits, and every frame says how many the other has got back: nothing is sent that
/// has no receive. What waits for credits waits in the memory of whoever sends it. Thread: the
/// executor's. Cost of a frame: one SEND; no allocation.
class control_channel : private waiter {
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
                  mr_allocator& memory, std::size_t message_max_bytes, listener& up);

  [[nodiscard]] queue_pair& qp() noexcept { return qp_; }
  /// Posts the receives: in INIT or later, before the peer can send.
  void post_receives();
  /// In RTS.
  void start() noexcept;
  /// Nothing is sent any more; what waits is forgotten.
  void stop() noexcept;

  void send(outgoing& o) noexcept;
  void reply(unsigned slot, const frame& f) noexcept;
  void release(unsigned slot) noexcept;

 private:
  using list = intrusive_list<outgoing>;

  struct answer : outgoing {
    control_channel* home = nullptr;
    unsigned slot = 0;
  };

  static std::coroutine_handle<> on_message(waiter& self) noexcept;
  static void on_answer_sent(outgoing& o) noexcept;
  void listen() noexcept;
  [[nodiscard]] bool take_message() noexcept;
  void take_credits(const frame& f);
  void pump() noexcept;
  void post(frame& f) noexcept;
  [[nodiscard]] std::uint32_t under_way() const noexcept { return sent_ - taken_by_peer_; }

  [[nodiscard]] local_mr_slice buffer(std::uint32_t n) noexcept {
    return buffers_.slice(n * agent_protocol::frame_bytes, agent_protocol::frame_bytes);
  }

  executor& home_;
  listener& up_;
  local_mr memory_;  ///< the receives' buffers, then those to send from
  const local_mr_slice buffers_;
  queue_pair qp_;  // Before the memory, which its requests do not hold.
  std::optional<receive_queue::next_message_op> next_;
  bool is_running_ = false;

  std::uint32_t sent_ = 0;
  std::uint32_t taken_by_peer_ = 0;
  std::uint32_t taken_ = 0;
  std::uint32_t told_ = 0;       ///< of `taken_`, as the peer knows
  std::uint32_t questions_ = 0;  ///< not answered
  list notices_;
  list waiting_questions_;
  std::array<answer, agent_protocol::credits> answers_;
};

}  // namespace cordma
