#pragma once

#include <cordma/detail/base/export.hpp>
#include <cordma/memory/slice.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>

namespace cordma::detail {

class message_channel;

/// What a message says, wherever it lies.
struct message_content {
  /// What came beside the bytes: immediate data, or the rkey of a window of this side that the
  /// message has invalidated.
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

/// Is destroyed with its last reference.
class counted_channel {
 public:
  counted_channel(const counted_channel&) = delete;
  counted_channel& operator=(const counted_channel&) = delete;
  void retain() noexcept { ++references_; }
  void release() noexcept {
    if (--references_ == 0) [[unlikely]]
      delete this;
  }

 protected:
  counted_channel() noexcept = default;
  virtual ~counted_channel() = default;

 private:
  unsigned references_ = 1;
};

/// A counted reference to a channel. The channel's stream, tasks and messages have one each.
class CORDMA_EXPORT channel_ref {
 public:
  channel_ref() noexcept = default;
  explicit channel_ref(message_channel& c) noexcept;
  channel_ref(channel_ref&& other) noexcept : channel_{std::exchange(other.channel_, nullptr)} {}
  channel_ref& operator=(channel_ref&& other) noexcept {
    const channel_ref gone = std::move(*this);
    channel_ = std::exchange(other.channel_, nullptr);
    return *this;
  }
  ~channel_ref() {
    if (channel_ != nullptr) channel_->release();
  }
  message_channel* operator->() const noexcept { return get(); }
  [[nodiscard]] message_channel* get() const noexcept;
  [[nodiscard]] explicit operator bool() const noexcept { return channel_ != nullptr; }

 private:
  counted_channel* channel_ = nullptr;
};

/// Owns a message that was delivered, or none. Destroying it gives the buffer back to the channel.
class CORDMA_EXPORT held_message {
 public:
  held_message() noexcept = default;
  /// \param channel  null: nobody wants the message back.
  held_message(channel_ref channel, message_content& content) noexcept
      : channel_{std::move(channel)}, content_{&content} {}
  held_message(held_message&& other) noexcept
      : channel_{std::move(other.channel_)}, content_{std::exchange(other.content_, nullptr)} {}
  held_message& operator=(held_message&& other) noexcept {
    if (this == &other) return *this;
    reset();
    channel_ = std::move(other.channel_);
    content_ = std::exchange(other.content_, nullptr);
    return *this;
  }
  ~held_message() { reset(); }

  /// Null: it owns none.
  [[nodiscard]] const message_content* content() const noexcept { return content_; }
  [[nodiscard]] const_local_mr_slice slice() const noexcept;
  void reset() noexcept {
    if (content_ != nullptr) give_back();
  }

 private:
  void give_back() noexcept;

  channel_ref channel_;
  message_content* content_ = nullptr;
};

}  // namespace cordma::detail
