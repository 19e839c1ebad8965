#pragma once

#include <cordma/detail/base/export.hpp>
#include <cordma/detail/messages/held_message.hpp>

#include <cstddef>
#include <cstdint>
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
  explicit stream_message(detail::held_message&& message) noexcept : held_{std::move(message)} {}

  [[nodiscard]] std::span<const std::byte> bytes() const noexcept {
    return held_.content() != nullptr ? held_.content()->bytes : std::span<const std::byte>{};
  }
  [[nodiscard]] std::size_t size_bytes() const noexcept { return bytes().size(); }
  /// The bytes as registered memory, to be sent on or written elsewhere without a copy.
  [[nodiscard]] const_local_mr_slice slice() const noexcept { return held_.slice(); }
  /// Empty for a message that came without, or was dropped or moved away.
  [[nodiscard]] std::optional<std::uint32_t> immediate() const noexcept {
    return held_.content() != nullptr ? held_.content()->immediate() : std::nullopt;
  }
  /// True if it came by rendezvous.
  [[nodiscard]] bool is_large() const noexcept {
    return held_.content() != nullptr && held_.content()->is_large;
  }
  void reset() noexcept { held_.reset(); }

 private:
  detail::held_message held_;
};

}  // namespace cordma
