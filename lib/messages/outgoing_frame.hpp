#pragma once

#include "agent/inline_grant.hpp"
#include "message_frame.hpp"

#include <cordma/detail/base/intrusive_list.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace cordma::detail {

/// The memory that a message lends. The binds are posted ahead of the message, with the same
/// doorbell.
struct message_loans {
  std::array<inline_grant*, inline_grant::per_message_max> all{};
  unsigned count = 0;
};

/// A frame that is sent when there is credit and room in the send queue. Destroying it withdraws
/// it.
struct outgoing_frame : list_hook<outgoing_frame> {
  static constexpr std::size_t head_max = 104;
  /// Most heads are shorter. Bytes that fit behind a head are sent in one piece with it, which
  /// costs a device less than two pieces.
  static constexpr std::size_t head_room = message_protocol::header_bytes + head_max;

  message_protocol::frame frame;
  /// Room for the frame's header, and behind it `head_bytes` that precede `bytes`.
  std::array<std::byte, head_room> head;
  std::uint32_t head_bytes = 0;
  /// Where to write the next `size_bytes` of the head, which has `head_max` at most.
  [[nodiscard]] std::byte* extend_head(std::uint32_t size_bytes) noexcept {
    head_bytes += size_bytes;
    return &head[message_protocol::header_bytes + head_bytes - size_bytes];
  }
  [[nodiscard]] std::byte* open_head(std::uint32_t size_bytes) noexcept {
    head_bytes = 0;
    return extend_head(size_bytes);
  }
  std::span<const std::byte> bytes{};
  std::optional<std::uint32_t> immediate{};
  /// `immediate` is the rkey of a window of the peer, which the SEND invalidates.
  bool is_invalidation = false;
  bool is_fenced = false;  ///< sent when the READs posted before it have ended
  message_loans lent{};
  /// The frame is posted or, when `why` is set, never will be. May destroy the frame. Possibly
  /// called in the middle of a reap.
  void (*on_posted)(outgoing_frame& self, const std::optional<failure>& why) noexcept = nullptr;
};

}  // namespace cordma::detail
