#pragma once

#include <cordma/detail/base/export.hpp>
#include <cordma/detail/messages/message_content.hpp>
#include <cordma/memory/slice.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>

namespace cordma {

/// A message that arrived: in a receive buffer of its stream, or, when it is large, in memory of
/// its own. Nobody else can change it. Dropping it frees the buffer for another message: a stream
/// whose messages are all kept gets no more. Move-only. May outlive stream and connection, but not
/// the runtime. \thread the executor's.
class CORDMA_EXPORT stream_message {
 public:
  stream_message() noexcept = default;
  /// Made by `channel`, which gets the message back; empty: nobody wants it back.
  stream_message(detail::channel_ref channel, detail::message_content& content) noexcept
      : content_{&content, {std::move(channel)}} {}

  [[nodiscard]] std::span<const std::byte> bytes() const noexcept {
    return content_ ? content_->bytes : std::span<const std::byte>{};
  }
  [[nodiscard]] std::size_t size_bytes() const noexcept { return bytes().size(); }
  /// The bytes as registered memory, to be sent on or written elsewhere without a copy.
  [[nodiscard]] const_local_mr_slice slice() const noexcept;
  /// Empty for a message that came without, or was dropped or moved away.
  [[nodiscard]] std::optional<std::uint32_t> immediate() const noexcept {
    return content_ ? content_->immediate() : std::nullopt;
  }
  /// True if it came by rendezvous.
  [[nodiscard]] bool is_large() const noexcept { return content_ && content_->is_large; }
  void reset() noexcept { content_.reset(); }

 private:
  struct CORDMA_EXPORT give_back {
    void operator()(detail::message_content* content) noexcept;
    detail::channel_ref channel;
  };
  std::unique_ptr<detail::message_content, give_back> content_;
};

}  // namespace cordma
