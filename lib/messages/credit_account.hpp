#pragma once

#include "message_frame.hpp"

#include <cordma/detail/base/assert.hpp>

#include <cstdint>

namespace cordma::detail {

/// Counts the frames of one end of a message stream, and says what the credits allow. Counts are
/// modulo 2^32. Pure: `message_channel` sends and receives the frames.
///
/// Frames to the peer: `sent` - `taken by the peer` are in flight, at most `credit()`. The credit
/// is 0 until the peer has told its terms; later it changes by the peer's frames:
///   grant:  `grow_to`, at once.
///   shrink: `request_shrink`, then `shrink_to` when our answer (`shrunk`) is posted.
///
/// Frames from the peer: told <= taken <= received. `taken` counts those whose buffers can receive
/// again, `told` those of which the peer knows that. Every frame to the peer tells it.
class credit_account {
 public:
  // ---- frames to the peer
  [[nodiscard]] std::uint32_t credit() const noexcept { return credit_; }
  [[nodiscard]] std::uint32_t in_flight() const noexcept { return sent_ - taken_by_peer_; }
  /// True if one more frame can go and `credits_left` are left for others.
  [[nodiscard]] bool may_send(std::uint32_t credits_left) const noexcept {
    return in_flight() + credits_left < credit_;
  }
  /// True if a message can go: `credits_reserved` are left for other frames. The last credit frame
  /// does not count: the peer answers none alone, so it may be in flight for long.
  [[nodiscard]] bool may_send_message() const noexcept {
    const std::uint32_t credit_frames = sent_ - last_credit_frame_ <= in_flight() ? 1 : 0;
    return in_flight() - credit_frames + message_protocol::credits_reserved < credit_;
  }
  /// A frame that carries `taken()` was posted.
  void count_sent() noexcept {
    CORDMA_ASSERT(in_flight() < credit_, "a frame is sent without credit");
    ++sent_;
    told_ = taken_;
    untold_credit_frames_ = 0;
  }
  /// The frame that was just counted carries only credits.
  void mark_credit_frame() noexcept { last_credit_frame_ = sent_ - 1; }
  /// The peer says that it has taken `count` frames. False: more than were sent.
  [[nodiscard]] bool try_release(std::uint32_t count) noexcept {
    if (count - taken_by_peer_ > in_flight()) [[unlikely]]
      return false;
    taken_by_peer_ = count;
    return true;
  }

  /// More frames may be in flight from now on.
  void grow_to(std::uint32_t credit) noexcept;
  /// The peer asks for fewer frames in flight, `credit` if none were.
  void request_shrink(std::uint32_t credit) noexcept;
  [[nodiscard]] bool has_shrink_request() const noexcept { return shrink_request_ != 0; }
  /// The credit that answers the request. Frames in flight keep their credits, so the answer need
  /// not wait for them.
  [[nodiscard]] std::uint32_t shrunk_credit() const noexcept;
  /// Carries out the request; `credit` is what the answer said.
  void shrink_to(std::uint32_t credit) noexcept;

  // ---- frames from the peer
  [[nodiscard]] std::uint32_t taken() const noexcept { return taken_; }
  /// Frames that the peer counts as in flight, as far as we have received them.
  [[nodiscard]] std::uint32_t used_by_peer() const noexcept { return received_ - told_; }
  /// Gives `used_by_peer()`.
  std::uint32_t count_received() noexcept { return ++received_ - told_; }
  void count_credit_frame() noexcept { ++untold_credit_frames_; }
  /// The buffers of `count` more frames can receive again.
  void count_taken(std::uint32_t count) noexcept {
    CORDMA_ASSERT(count <= received_ - taken_, "more frames are taken than were received");
    taken_ += count;
  }
  /// True if a frame is to be sent soon, only to tell the peer what was taken.
  [[nodiscard]] bool needs_telling() const noexcept { return taken_ != told_ && is_peer_low(); }
  /// True if the peer, as far as we know, has credit for another message.
  [[nodiscard]] bool may_peer_send_message() const noexcept {
    return used_by_peer() + message_protocol::credits_reserved < peer_credit_limit_;
  }

  /// The number of messages that the peer was told it may have in flight.
  [[nodiscard]] std::uint32_t peer_credit_limit() const noexcept { return peer_credit_limit_; }
  /// \param occupied  of `credit`, what the peer had in flight when it shrank, and may keep so.
  /// \param can_grow  `is_growth_due` when the peer uses half of what its messages can.
  void limit_peer(std::uint32_t credit, std::uint32_t occupied, bool can_grow) noexcept;
  /// True if the peer, with `used` frames in flight, should be granted more credit.
  [[nodiscard]] bool is_growth_due(std::uint32_t used) const noexcept {
    return used >= grow_threshold_;
  }

 private:
  [[nodiscard]] bool is_peer_low() const noexcept;

  std::uint32_t sent_ = message_protocol::count_first;
  std::uint32_t taken_by_peer_ = message_protocol::count_first;
  std::uint32_t last_credit_frame_ = message_protocol::count_first - 1;
  std::uint32_t credit_ = 0;
  std::uint32_t shrink_request_ = 0;  ///< 0: none

  std::uint32_t received_ = message_protocol::count_first;
  std::uint32_t taken_ = message_protocol::count_first;
  std::uint32_t told_ = message_protocol::count_first;
  std::uint32_t untold_credit_frames_ = 0;  ///< received since we last sent
  std::uint32_t peer_credit_limit_ = 0;
  std::uint32_t grow_threshold_ = 0;
};

}  // namespace cordma::detail
