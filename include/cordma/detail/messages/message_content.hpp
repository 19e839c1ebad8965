#pragma once

#include <cordma/detail/base/counted.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace cordma::detail {

class message_channel;
/// The channel's queue pair, stream, tasks and messages have one each.
using channel_ref = counted_ref<message_channel>;

/// The content of a message, wherever the bytes lie.
struct message_content {
  /// The kind of the word beside the bytes: immediate data, or the rkey of a window of this side
  /// that the message has invalidated.
  enum class word_kind : std::uint8_t { none, immediate, invalidated };

  std::span<const std::byte> bytes{};
  std::uint32_t word = 0;
  word_kind word_is = word_kind::none;
  bool is_large = false;

  [[nodiscard]] std::optional<std::uint32_t> immediate() const noexcept {
    return word_is == word_kind::immediate ? std::optional{word} : std::nullopt;
  }
  [[nodiscard]] std::optional<std::uint32_t> invalidated() const noexcept {
    return word_is == word_kind::invalidated ? std::optional{word} : std::nullopt;
  }
};

}  // namespace cordma::detail
