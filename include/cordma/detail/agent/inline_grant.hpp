#pragma once

#include <cordma/agent/agent_options.hpp>

#include <cstdint>
#include <optional>
#include <utility>

namespace cordma {

struct bind_request;

namespace detail {
struct grant;
}

/// What whoever borrows memory has to know of it.
struct loan_terms {
  std::uint64_t address = 0;
  std::uint64_t length = 0;  ///< bytes
  std::uint32_t rkey = 0;
  cordma::isolation isolation = isolation::exact;
};

/// Memory that a message of ours on the data queue pair lends: its terms travel in that message,
/// and what the peer sends there gives it back. There is no lease at this end: whoever sent the
/// message says when it is over. Must stay where it is. \thread the executor's.
class inline_grant {
 public:
  /// It has ended: nobody reaches the memory any more, or ever did. Mostly in the middle of a reap.
  using function = void (*)(inline_grant& self) noexcept;
  /// Of one message.
  static constexpr unsigned per_message_max = 3;
  explicit inline_grant(function on_ended) noexcept : on_ended_{on_ended} {}
  inline_grant(inline_grant&&) = delete;
  ~inline_grant() { drop(); }

  [[nodiscard]] explicit operator bool() const noexcept { return grant_ != nullptr; }
  [[nodiscard]] loan_terms terms() const noexcept;
  /// Whether a bind is to be posted ahead of its message, with the same doorbell.
  [[nodiscard]] bool needs_bind() const noexcept;
  /// Unsignaled.
  [[nodiscard]] bind_request bind() const noexcept;
  /// The message is on its way, and the bind ahead of it. Until then nobody could reach the memory.
  void posted() noexcept;

  /// The peer has said that it uses it no more. It ends once its access is taken away, perhaps at
  /// once: surely if the message that said so has `invalidated` the key in its terms.
  void give_back(std::optional<std::uint32_t> invalidated = {}) noexcept;
  /// The peer has been asked to say so. After the policy's `grace` its access ends all the same.
  void revoke() noexcept;
  /// The same in the background, without `on_ended`; at once, if the peer never heard of it.
  void drop(bool is_known = true) noexcept {
    if (grant_ != nullptr) leave(is_known);
  }

 private:
  friend class lender;
  void leave(bool is_known) noexcept;
  void end() noexcept {
    grant_ = nullptr;
    on_ended_(*this);
  }
  const function on_ended_;
  detail::grant* grant_ = nullptr;
};

}  // namespace cordma
