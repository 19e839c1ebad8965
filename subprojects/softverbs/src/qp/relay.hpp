#pragma once

#include "qp/xrc.hpp"

#include <array>
#include <cstdint>
#include <optional>

// A target of XRC passes messages for queues of other processes of this host on to them, over a
// route for that alone. There, a proxy takes them for the queue: "XRC" in docs/design.md.

namespace softverbs {

/// The messages that a target has passed on. Under slot->receive.
class relay {
 public:
  /// The most messages without an answer.
  static constexpr std::uint32_t open_max = 64;

  link* route = nullptr;
  std::uint32_t route_generation = 0;
  std::uint32_t epoch = 0;            ///< the relayed frames have it; a proxy serves one at a time
  std::uint32_t initiator_epoch = 0;  ///< the last message's initiator has it
  std::uint16_t slot = 0;             ///< the process of the queue that was named last

  [[nodiscard]] bool is_full() const noexcept { return tail_ - head_ == open_max; }
  [[nodiscard]] bool is_idle() const noexcept { return tail_ == head_; }
  [[nodiscard]] std::uint32_t oldest() const noexcept { return psns_[head_ % open_max]; }
  [[nodiscard]] bool has(std::uint32_t psn) const noexcept {
    for (std::uint32_t n = head_; n != tail_; ++n)
      if (psns_[n % open_max] == psn) return true;
    return false;
  }
  void add(std::uint32_t psn) noexcept { psns_[tail_++ % open_max] = psn; }
  /// Ends the messages up to `psn`. Returns the PSN of the last one, or none.
  std::optional<std::uint32_t> end_to(std::uint32_t psn) noexcept {
    std::optional<std::uint32_t> last;
    while (!is_idle() && psn_distance(oldest(), psn) >= 0) last = psns_[head_++ % open_max];
    return last;
  }
  /// Forgets all messages, and all answers that still come.
  void drop() noexcept {
    head_ = tail_;
    epoch = 0;
  }

 private:
  std::uint32_t head_ = 0;
  std::uint32_t tail_ = 0;
  std::array<std::uint32_t, open_max> psns_{};
};

/// responder.cpp: executes a piece for a target by passing it on.
reply take_by_relay(queue_pair& target, const incoming& piece, std::uint32_t number) noexcept;
/// relay.cpp: passes a piece on that is in sequence and well formed.
reply pass_on(queue_pair& target, const incoming& piece, std::uint32_t number) noexcept;

/// Takes an answer of a proxy. Returns what an initiator in this process is to hear. Under both
/// locks of the target.
std::optional<frame_header> on_relay_answer(queue_pair& target, const link& from,
                                            const frame_header& header) noexcept;
/// Handles the end of the route, like on_relay_answer().
std::optional<frame_header> on_relay_down(queue_pair& target, const link& dead,
                                          std::uint32_t generation) noexcept;
/// remote_peer.cpp: gives the answer of a target to an initiator in this process. Holds no lock.
void answer_initiator(node& local_node, const frame_header& header) noexcept;
/// Sends what the target owes a remote initiator; tries again soon if there is no room. Under
/// slot->send.
void send_owed(queue_pair& target) noexcept;
/// Ends the wait of an initiator in this process whose target passed messages on, and is gone or
/// was reset. Under slot->send of the initiator.
void check_target(queue_pair& initiator) noexcept;

/// proxy.cpp: takes a message that another process of this host passed on. As on_request().
[[nodiscard]] bool on_relayed(node& local_node, link& from, const frame_header& header,
                              const std::byte* payload) noexcept;

}  // namespace softverbs
